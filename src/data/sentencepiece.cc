#include "data/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <limits>

#include "core/check.h"
#include "core/file.h"
#include "data/normalizer.h"
#include "data/tokenizer_json_parts.h"
#include "data/utf8.h"

namespace longspan {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // ▁, which stands for a space in pieces

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) {
    const MappedFile file(path);
    const auto status = processor_.LoadFromSerializedProto(file.text());
    Require(status.ok() && processor_.GetPieceSize() > 0,
            "{} is no SentencePiece model ({}); a tiktoken file must be named *.tiktoken", path,
            status.ToString());
    if (processor_.bos_id() >= 0) prefix_.push_back(processor_.bos_id());
    // The library leaves the space out that it put in front of a text; whether it did is in the model.
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      if (IsPlain(id) && piece.size() > kSpace.size() && piece.starts_with(kSpace)) {
        strips_first_space_ = !processor_.DecodeIds({id}).starts_with(' ');
        break;
      }
    }
  }

  int64_t vocab_size() const override { return processor_.GetPieceSize(); }

  void AppendToken(int32_t id, bool is_first, std::string* bytes) const override {
    Require(id >= 0 && id < vocab_size(), "id {} is no token; the tokenizer's ids are below {}", id,
            vocab_size());
    if (processor_.IsControl(id)) return;
    std::string text;
    if (processor_.IsByte(id)) {
      text = static_cast<char>(*FallbackByte(processor_.IdToPiece(id)));
    } else if (processor_.IsUnknown(id)) {
      text = processor_.DecodeIds({id});
    } else {
      AppendReplaced(processor_.IdToPiece(id), kSpace, " ", &text);
      if (is_first && strips_first_space_ && text.starts_with(' ')) text.erase(0, 1);
    }
    bytes->append(text);
  }

  std::span<const int32_t> document_prefix() const override { return prefix_; }

 private:
  bool IsPlain(int id) const {
    return !processor_.IsControl(id) && !processor_.IsUnknown(id) && !processor_.IsByte(id) &&
           !processor_.IsUnused(id);
  }

  std::vector<int32_t> DoEncode(std::string_view text, bool special_is_text) const override {
    Require(special_is_text, "SentencePiece does not look for special tokens in a text");
    RequireUtf8(text);
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    Require(status.ok(), "SentencePiece: {}", status.ToString());
    return ids;
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<int32_t> prefix_;
  bool strips_first_space_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> OpenSentencePiece(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

}  // namespace longspan
