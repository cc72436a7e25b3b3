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
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

// Throws Error, beginning with `where`, for bytes that are no protobuf message, and for rules of a normalizer
// that the library, which looks at none of this, would follow out of its memory.
SentencePieceModel ReadSentencePieceModel(std::string_view bytes, const std::string& where);

// Where a text may be cut so that its ids are those of the parts one behind the other: before any of these
// characters, if a printable ASCII character is before it, and behind it one or a space. It takes a model in
// whose vocabulary nothing reaches over a space, and that treats the space which a part begins with as one
// inside a text: because it puts one in front of each text, and the part goes without its own; or because it
// leaves all as they are.
struct Seams {
  std::string_view characters;  // empty: nowhere
  bool are_kept = false;        // a part begins with its character, or it is left out
};
Seams FindSeams(const SentencePieceModel& model);

}  // namespace longspan
