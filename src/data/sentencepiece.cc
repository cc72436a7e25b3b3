#include "data/sentencepiece.h"

#include <sentencepiece_processor.h>

#include "core/check.h"
#include "core/file.h"
#include "data/normalizer.h"
#include "data/piece_cache.h"
#include "data/pool.h"
#include "data/sentencepiece_model.h"
#include "data/tokenizer_json_parts.h"
#include "data/utf8.h"

namespace longspan {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // ▁, which stands for a space in pieces

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& path, std::optional<bool> add_bos, std::optional<bool> add_eos) {
    const MappedFile file(path);
    seams_ = FindSeams(ReadSentencePieceModel(file.text(), path));
    const auto status = processor_.LoadFromSerializedProto(file.text());
    Require(status.ok() && processor_.GetPieceSize() > 0,
            "{} is no SentencePiece model ({}); a tiktoken file must be named *.tiktoken", path,
            status.ToString());
    const auto around = [&](std::optional<bool> add, bool otherwise, const char* what, int id,
                            std::vector<int32_t>* ids) {
      if (!add.value_or(otherwise)) return;
      Require(id >= 0, "{}: tokenizer_config.json asks for add_{}_token, but the model has none", path, what);
      ids->push_back(id);
    };
    around(add_bos, processor_.bos_id() >= 0, "bos", processor_.bos_id(), &prefix_);
    around(add_eos, false, "eos", processor_.eos_id(), &suffix_);
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
  std::span<const int32_t> document_suffix() const override { return suffix_; }

 private:
  bool IsPlain(int id) const {
    return !processor_.IsControl(id) && !processor_.IsUnknown(id) && !processor_.IsByte(id) &&
           !processor_.IsUnused(id);
  }

  std::vector<int32_t> DoEncode(std::string_view text, bool special_is_text) const override {
    Require(special_is_text, "SentencePiece does not look for special tokens in a text");
    RequireUtf8(text);
    std::vector<int32_t> ids;
    const auto encode = [&](std::string_view piece, std::vector<int32_t>* out) {
      std::vector<int> part;
      const auto status = processor_.Encode(piece, &part);
      Require(status.ok(), "SentencePiece: {}", status.ToString());
      out->insert(out->end(), part.begin(), part.end());
    };
    if (seams_.characters.empty()) {
      encode(text, &ids);
      return ids;
    }
    ids.reserve(text.size() / 4);
    std::unique_ptr<PieceCache> cache = caches_.Take();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = NextSeam(text, begin);
      cache->Append(text.substr(begin, end - begin), &ids, encode);
      begin = seams_.are_kept ? end : end + 1;
    }
    caches_.Give(std::move(cache));
    return ids;
  }

  // The next character to cut at, or the end of the text.
  size_t NextSeam(std::string_view text, size_t begin) const {
    const auto is_printable = [](char c) { return c > ' ' && c <= '~'; };
    for (size_t at = text.find_first_of(seams_.characters, begin); at != text.npos;
         at = text.find_first_of(seams_.characters, at + 1))
      if (at > begin && at + 1 < text.size() && is_printable(text[at - 1]) &&
          (seams_.characters.find(text[at + 1]) != seams_.characters.npos || is_printable(text[at + 1])))
        return at;
    return text.size();
  }

  sentencepiece::SentencePieceProcessor processor_;
  mutable Pool<PieceCache> caches_;
  std::vector<int32_t> prefix_, suffix_;
  Seams seams_;
  bool strips_first_space_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> OpenSentencePiece(const std::string& path, std::optional<bool> add_bos,
                                             std::optional<bool> add_eos) {
  return std::make_unique<SentencePieceTokenizer>(path, add_bos, add_eos);
}

}  // namespace longspan
