#include "data/tokenizer.h"

#include "core/check.h"

namespace longspan {
namespace {

constexpr int64_t kNumBytes = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return kNumBytes; }

  std::vector<int32_t> Encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  std::string Decode(std::span<const int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const int32_t id : ids) {
      Require(id >= 0 && id < kNumBytes, "id {} is no byte; the byte tokenizer has ids from 0 to {}", id,
              kNumBytes - 1);
      text.push_back(static_cast<char>(id));
    }
    return text;
  }

  bool IsBytes() const override { return true; }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace longspan
