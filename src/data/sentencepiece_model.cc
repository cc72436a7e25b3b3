#include "data/sentencepiece_model.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/check.h"

namespace longspan {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // ▁, which stands for a space in pieces

// The fields of a protobuf message, one by one.
class Fields {
 public:
  Fields(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  bool Next() {
    if (rest_.empty()) return false;
    const uint64_t tag = Varint();
    number = tag >> 3;
    text = {};
    value = 0;
    switch (tag & 7) {
      case 0:
        value = Varint();
        break;
      case 1:
        Take(8);
        break;
      case 2:
        text = Take(Varint());
        break;
      case 5:
        Take(4);
        break;
      default:
        Fail();
    }
    return true;
  }

  uint64_t number = 0;
  uint64_t value = 0;     // of an integer
  std::string_view text;  // of a string or a message

 private:
  uint64_t Varint() {
    uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(Take(1)[0]);
      result |= static_cast<uint64_t>(byte & 0x7Fu) << shift;
      if (byte < 0x80) return result;
    }
    Fail();
  }
  std::string_view Take(uint64_t size) {
    if (size > rest_.size()) Fail();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  [[noreturn]] void Fail() const {
    throw Error(fmt::format(
        "{} is damaged, or no SentencePiece model; a tiktoken file must be named *.tiktoken", where_));
  }

  std::string_view rest_;
  const std::string& where_;
};

// A normalizer's rules: the size of a trie in bytes, the trie, and what its values point into, texts that end
// in a zero. The library follows all of them unseen. The trie is a double array (Darts-clone): from the unit
// at `place` go those at base ^ byte, of which the library reads one before it knows whether it is there; its
// text is said at the base itself.
void CheckRules(std::string_view rules, const std::string& where) {
  const auto require = [&](bool ok) {
    Require(ok, "{} is damaged: the rules of its normalizer lead out of them", where);
  };
  if (rules.empty()) return;
  uint32_t trie_bytes = 0;
  require(rules.size() > sizeof(trie_bytes) && rules.ends_with('\0'));
  std::memcpy(&trie_bytes, rules.data(), sizeof(trie_bytes));
  rules.remove_prefix(sizeof(trie_bytes));
  require(trie_bytes > 0 && trie_bytes % sizeof(uint32_t) == 0 && trie_bytes < rules.size());
  std::vector<uint32_t> units(trie_bytes / sizeof(uint32_t));
  std::memcpy(units.data(), rules.data(), trie_bytes);
  const size_t texts_bytes = rules.size() - trie_bytes;
  constexpr uint32_t kIsValue = uint32_t{1} << 31, kHasValue = 1 << 8, kIsFar = 1 << 9;
  for (size_t place = 0; place < units.size(); ++place) {
    const uint32_t unit = units[place];
    if (place > 0 && (unit & kIsValue) != 0) continue;  // no byte leads to it
    const size_t base = place ^ (static_cast<size_t>(unit >> 10) << ((unit & kIsFar) != 0 ? 8 : 0));
    require((base | 0xFF) < units.size());
    require((unit & kHasValue) == 0 || (units[base] & ~kIsValue) < texts_bytes);
  }
}

}  // namespace

SentencePieceModel ReadSentencePieceModel(std::string_view bytes, const std::string& where) {
  SentencePieceModel model;
  for (Fields fields(bytes, where); fields.Next();) {
    Fields inner(fields.text, where);
    if (fields.number == 1) {  // pieces
      SentencePieceModel::Piece& piece = model.pieces.emplace_back();
      while (inner.Next()) {
        if (inner.number == 1) piece.text = inner.text;
        if (inner.number == 3) piece.type = inner.value;
      }
    } else if (fields.number == 2) {  // trainer_spec
      while (inner.Next()) {
        if (inner.number == 3) model.model_type = inner.value;
        if (inner.number == 24) model.treat_whitespace_as_suffix = inner.value != 0;
      }
    } else if (fields.number == 3) {  // normalizer_spec
      while (inner.Next()) {
        if (inner.number == 1) model.normalizer = inner.text;
        if (inner.number == 2) CheckRules(inner.text, where);
        if (inner.number == 3) model.add_dummy_prefix = inner.value != 0;
        if (inner.number == 4) model.remove_extra_whitespaces = inner.value != 0;
        if (inner.number == 5) model.escape_whitespaces = inner.value != 0;
      }
    } else if (fields.number == 5) {  // denormalizer_spec
      while (inner.Next())
        if (inner.number == 2) CheckRules(inner.text, where);
    }
  }
  return model;
}

Seams FindSeams(const SentencePieceModel& model) {
  // Normalizers that join no printable ASCII characters; those of a model's own may do anything.
  constexpr std::array<std::string_view, 5> kNormalizers = {"identity", "nfkc", "nmt_nfkc", "nfkc_cf",
                                                            "nmt_nfkc_cf"};
  const bool has_words =
      model.model_type == SentencePieceModel::kBpe || model.model_type == SentencePieceModel::kUnigram;
  const bool are_kept = !model.add_dummy_prefix;
  if (!has_words || model.treat_whitespace_as_suffix || (are_kept && model.remove_extra_whitespaces) ||
      !model.escape_whitespaces || std::ranges::find(kNormalizers, model.normalizer) == kNormalizers.end())
    return {};
  bool has_space = false;  // else it is unknown, and unknown characters in a row are one id
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.type == SentencePieceModel::kControl || piece.type == SentencePieceModel::kByte ||
        piece.type == SentencePieceModel::kUnknown)
      continue;
    const size_t last = piece.text.rfind(kSpace);
    if (piece.text == kSpace) has_space = piece.type == SentencePieceModel::kNormal;
    if (last == piece.text.npos) {
      if (piece.type == SentencePieceModel::kUserDefined && piece.text.find(' ') != piece.text.npos)
        return {};
      continue;
    }
    // Only in front; and user-defined symbols are cut out of the text before anything is put in front of it.
    if (piece.type == SentencePieceModel::kUserDefined && !are_kept) return {};
    for (size_t at = 0; at < last; at += kSpace.size())
      if (piece.text.substr(at, kSpace.size()) != kSpace) return {};
  }
  if (!has_space) return {};
  // nmt: which makes spaces of line breaks.
  return {.characters = model.normalizer.starts_with("nmt_") ? " \n" : " ", .are_kept = are_kept};
}

}  // namespace longspan
