// Documents to token ids, on several threads, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/document_source.h"
#include "data/tokenizer.h"

namespace longspan {

struct EncodedDocument {
  int64_t name = 0, line = 0;                  // in DocumentSource::names(); line 0: the file is the document
  std::string where;                           // "FILE" or "FILE:LINE"
  std::vector<int32_t> ids;                    // with the tokenizer's prefix and suffix around a text
  std::optional<std::vector<int32_t>> labels;  // as JsonlDocument has them
  // Text of a tokenizer of bytes stays as it is: these are the ids, and `owner` keeps them.
  std::string_view bytes;
  std::shared_ptr<const void> owner;
  bool is_mapped = false;  // they lie in a file, and take no memory
};

// Gives each document that has tokens to `sink`, in the source's order, on the thread that calls. `threads`
// others (0: one a core) encode; texts wait in bounded number. Throws the Error of the first document that
// cannot be encoded: its text is not UTF-8, its line is no JSONL, ids don't fit into `vocab_size` (of text:
// tokenizer.vocab_size() > vocab_size). `progress`, called now and then, gets the source's bytes_read().
void EncodeDocuments(DocumentSource& source, const Tokenizer& tokenizer, int64_t vocab_size, int64_t threads,
                     const std::function<void(EncodedDocument)>& sink,
                     const std::function<void(int64_t bytes_read)>& progress);

}  // namespace longspan
