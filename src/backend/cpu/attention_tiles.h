// Which tiles of attention exist, and what of them is visible: spans cut into key panels and query blocks in
// global order, and the mask's row runs turned into one 64-bit word per row and panel where a tile is neither
// empty nor full.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/attention_kernels.h"
#include "mask/mask.h"

namespace longspan::cpu {

// Spans of consecutive global indices and the tensor rows that hold them, in increasing order of the indices.
struct PlacedSpan {
  Range indices;
  int64_t row = 0;     // of indices.begin
  int64_t before = 0;  // indices in the spans before this one
};
// Spans that continue each other in both respects are joined. CHECKs that no two overlap.
std::vector<PlacedSpan> SortSpans(std::span<const Range> spans);

// Panels of at most 64 keys, each inside one span, in increasing order of the indices.
std::vector<KeyPanel> CutIntoPanels(std::span<const Range> key_spans);

// Global indices, increasing, at which a mask falls apart: no row from there on sees a key before, no row
// before sees one from there on. Documents begin at such places. O(runs).
std::vector<int64_t> PlacesToCut(const Mask& mask);

// Where blocks of at most `most` of `size` things begin, and `size` at the end. A block is cut short at the
// last of `places` that leaves it more than half full, so that it shares less with the next one.
std::vector<int64_t> CutIntoBlocks(int64_t size, int64_t most, std::span<const int64_t> places);
// The same for panels, at global indices.
std::vector<int64_t> CutIntoBlocks(std::span<const KeyPanel> panels, int64_t most,
                                   std::span<const int64_t> indices);

// Up to two disjoint ranges of panels (or of blocks of panels) in increasing order; outside them nothing is
// visible.
struct Reach {
  std::array<Range, 2> parts;

  int64_t begin() const { return parts[0].empty() ? parts[1].begin : parts[0].begin; }
  int64_t end() const { return parts[1].empty() ? parts[0].end : parts[1].end; }
  bool empty() const { return parts[0].empty() && parts[1].empty(); }
  bool Contains(int64_t i) const {
    return (parts[0].begin <= i && i < parts[0].end) || (parts[1].begin <= i && i < parts[1].end);
  }
  // How many of its members are smaller than i.
  int64_t CountBelow(int64_t i) const;
  // The blocks that hold a panel of this; block b is panels [begins[b], begins[b + 1]).
  Reach InBlocks(std::span<const int64_t> begins) const;
};

// The rows of a query block and what each of them sees.
struct QueryRows {
  int num_rows = 0, strip_rows = 1;
  std::array<int64_t, kMostRows> rows;  // of the tensor
  std::array<RowIntervals, kMostRows> sees;

  // By strip, for each of the two intervals: where some row sees something, and what all rows see.
  struct StripView {
    std::array<Range, 2> some, all;
  };
  std::array<StripView, kMostStrips> strips;

  int num_strips() const { return (num_rows + strip_rows - 1) / strip_rows; }
  QueryBlock block() const { return {num_rows, rows.data()}; }
};

// Query rows in increasing global order, cut into blocks of a target's size or a little less (CutIntoBlocks).
class QueryBlocks {
 public:
  QueryBlocks(const Mask& mask, std::span<const int64_t> places_to_cut, std::span<const Range> query_spans,
              BlockSize block);

  int64_t size() const { return std::ssize(begins_) - 1; }
  void Load(int64_t block, QueryRows& rows) const;
  // O(runs touched + log panels); not exact: a panel in reach may hold nothing that is visible.
  Reach ReachOf(int64_t block, std::span<const KeyPanel> panels) const;

 private:
  // Calls f(indices, row of the first, position in the block of the first) for the block's pieces of spans.
  template <class F>
  void ForPieces(int64_t block, const F& f) const;

  const Mask& mask_;
  std::vector<PlacedSpan> spans_;
  int strip_rows_;
  std::vector<int64_t> begins_;  // in rows of all spans, in order
};

// The tile masks of a query block against some panels, [strip][panel].
class TileMasks {
 public:
  // False if no tile is visible.
  bool Classify(const QueryRows& rows, std::span<const KeyPanel> panels);
  const TileMask* tiles() const { return tiles_.data(); }

 private:
  std::array<TileMask, kMostTiles> tiles_;
  std::array<uint64_t, kMostTileRows> rows_;  // [tile][strip_rows]
};

}  // namespace longspan::cpu
