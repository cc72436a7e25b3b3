// What a SentencePiece model says of itself and its library doesn't tell.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace longspan {

// Fields of sentencepiece_model.proto, with that file's defaults; texts point into the model's bytes.
struct SentencePieceModel {
  enum PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  enum ModelType { kUnigram = 1, kBpe = 2 };
  struct Piece {
    std::string_view text;
    uint64_t type = kNormal;
  };
  std::vector<Piece> pieces;
  uint64_t model_type = kUnigram;
  bool treat_whitespace_as_suffix = false;
  std::string_view normalizer;  // its name, as "nmt_nfkc"
  bool add_dummy_prefix = true, escape_whitespaces = true;
};

// Throws Error, beginning with `where`, for bytes that are no protobuf message.
SentencePieceModel ReadSentencePieceModel(std::string_view bytes, const std::string& where);

// Where a text may be cut so that its ids are those of the parts one behind the other: at any of these
// characters, which then is left out, if a printable ASCII character is before it, and behind it one or a
// space. Empty: nowhere. It takes a model in whose vocabulary nothing reaches over a space, and that puts one
// in front of each text.
std::string_view SeamCharacters(const SentencePieceModel& model);

}  // namespace longspan
