// A tokenizer made of parts: added tokens, normalizer, pre-tokenizer, byte pair encoding.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/normalizer.h"
#include "data/pool.h"
#include "data/pretokenizer.h"
#include "data/tokenizer.h"

namespace longspan {

// What a token stands for in a text.
struct TokenTexts {
  std::vector<std::optional<std::string>> bytes;  // by id; none: there is no such token
  std::string separator;                          // between tokens
  // At the beginning of a text, up to so many of these are left out of the first token.
  std::string strip;
  int64_t max_strips = 0;
  bool drop_spaces = false;  // all spaces are left out of the first token
};

struct BpeTokenizerParts {
  BpeSpec bpe;
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  TokenTexts texts;
  std::vector<int32_t> document_prefix, document_suffix;
};

// The pipeline of Hugging Face's library: added tokens that are looked for as they are, then, in what is
// between them, normalization, the other added tokens, cutting, and merging.
class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeTokenizerParts parts);
  ~BpeTokenizer() override;

  int64_t vocab_size() const override { return static_cast<int64_t>(texts_.bytes.size()); }
  void AppendToken(int32_t id, bool is_first, std::string* bytes) const override;
  std::span<const int32_t> document_prefix() const override { return document_prefix_; }
  std::span<const int32_t> document_suffix() const override { return document_suffix_; }

 private:
  struct Workspace;  // what one Encode needs; kept for the next

  std::vector<int32_t> DoEncode(std::string_view text, bool special_is_text) const override;

  Bpe bpe_;
  Normalizer normalizer_;
  Pretokenizer pretokenizer_;
  AddedTokenFinder in_text_, in_normalized_text_;
  TokenTexts texts_;
  std::vector<int32_t> document_prefix_, document_suffix_;

  mutable Pool<Workspace> workspaces_;
};

}  // namespace longspan
