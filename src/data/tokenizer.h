// Tokenizer: text to ids.
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
  // Throws Error if it cannot; the caller says which text it was.
  virtual std::vector<int32_t> Encode(std::string_view text) const = 0;
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
  // True if Encode maps each byte to its value: then a text need not be encoded to be read from anywhere.
  virtual bool IsBytes() const = 0;
};

// A token is a byte: ids 0 … 255. Decode throws Error for any other id.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

}  // namespace longspan
