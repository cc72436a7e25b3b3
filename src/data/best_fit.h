// Best-fit packing without loss: documents are cut into pieces of at most T tokens, and the pieces put into
// as few sequences as best-fit-decreasing finds (Ding et al., "Fewer truncations improve language modeling",
// ICML 2024).
#pragma once

#include <cstdint>
#include <vector>

namespace longspan {

// Consecutive tokens of a document.
struct Piece {
  int64_t document = 0;
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

// Cuts each of `pieces` from its beginning into pieces of `max_target_length` tokens and a rest, and puts
// those, largest first, each into the fullest sequence that still has room for it, else into a new one. Every
// token comes back once. A sequence's pieces are in order of document and begin, and the sequences in that of
// their first pieces. O(n log n) time for n pieces after the cut.
std::vector<std::vector<Piece>> PackBestFit(const std::vector<Piece>& pieces, int64_t max_target_length);

// The pieces of these sequences in order; those that continue each other are one again.
std::vector<Piece> JoinPieces(const std::vector<std::vector<Piece>>& sequences);

}  // namespace longspan
