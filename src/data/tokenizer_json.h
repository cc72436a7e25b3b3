// tokenizer.json, as Hugging Face's `tokenizers` writes it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer.h"

namespace longspan {

// Read is the model BPE, over bytes (ByteLevel) or characters, with byte_fallback, fuse_unk and
// ignore_merges;
// - normalizers: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, Sequence;
// - pre-tokenizers: ByteLevel (last), Split, Digits, Punctuation, Whitespace, WhitespaceSplit,
//   CharDelimiterSplit, Metaspace, Sequence;
// - post-processors: ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, Sequence: what they
// put
//   around one text becomes document_prefix and document_suffix;
// - decoders: ByteLevel, Metaspace, and Replace, ByteFallback, Fuse, Strip in a Sequence.
// All else in the file that would change ids (other models, dropout, truncation, …) is refused by its name.
// Throws Error naming the file and the place in it.
std::unique_ptr<Tokenizer> OpenTokenizerJson(const std::string& path);
// The same from its text; `where` names it in errors.
std::unique_ptr<Tokenizer> ParseTokenizerJson(std::string_view text, const std::string& where);

}  // namespace longspan
