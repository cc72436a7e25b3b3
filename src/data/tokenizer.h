// Tokenizer: text to ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longspan {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual int64_t vocab_size() const = 0;  // ids are in [0, vocab_size)

  // The ids of a text, with nothing added before or behind. Special tokens that it spells ("<|endoftext|>")
  // are text like any other. Throws Error if it cannot (the text is not UTF-8); the caller says which text it
  // was. May be called by several threads at once.
  std::vector<int32_t> Encode(std::string_view text) const { return DoEncode(text, true); }
  // The same, but special tokens in the text are themselves. Only for texts from someone who may write them:
  // a chat template, not a user. Throws Error if this tokenizer knows none.
  std::vector<int32_t> EncodeWithSpecialTokens(std::string_view text) const { return DoEncode(text, false); }

  // Appends the bytes that a token stands for; those of a character may be spread over several. `is_first`:
  // none comes before it. Throws Error for an id without token.
  virtual void AppendToken(int32_t id, bool is_first, std::string* bytes) const = 0;
  // The bytes of all. They are UTF-8 if the ids are those of a text; TokenStream makes text of any ids.
  std::string Decode(std::span<const int32_t> ids) const;

  // What a model expects before and behind each document: BOS, EOS, or nothing.
  virtual std::span<const int32_t> document_prefix() const { return {}; }
  virtual std::span<const int32_t> document_suffix() const { return {}; }

  // True if Encode maps each byte to its value: then a text need not be encoded to be read from anywhere.
  virtual bool IsBytes() const { return false; }

 private:
  virtual std::vector<int32_t> DoEncode(std::string_view text, bool special_is_text) const = 0;
};

// A number that two tokenizers share if all their ids stand for the same bytes; 0 if this one's stand for
// none.
uint64_t TokenizerFingerprint(const Tokenizer& tokenizer);

// A token is a byte: ids 0 … 255.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

// Opens what is at `path`:
// - a directory: its tokenizer.json, else its tokenizer.model (SentencePiece), else the only *.tiktoken in
// it;
// - a file *.json (Hugging Face, data/tokenizer_json.h), *.tiktoken (data/tiktoken.h) or *.model
//   (data/sentencepiece.h).
// `pattern` cuts the text for a tiktoken file: the name of a known encoding (TiktokenEncodingNames), or a
// regular expression; empty: the encoding that the file is named after. Others take none.
// Throws Error naming the file and the reason, for whatever would make other ids than the file's author had.
std::unique_ptr<Tokenizer> OpenTokenizer(const std::string& path, const std::string& pattern = "");

// Text from ids as they come. Gives characters once they are whole; bytes that are no UTF-8 become U+FFFD.
class TokenStream {
 public:
  explicit TokenStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string Next(int32_t id);  // what has become certain with this token; may be empty
  std::string Finish();          // what was held back; the next id then begins a new text

 private:
  const Tokenizer& tokenizer_;
  bool is_first_ = true;
  std::string held_;  // the beginning of a character
};

}  // namespace longspan
