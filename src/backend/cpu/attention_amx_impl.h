// What the bf16 kernels on tiles (tile.h) share: how operands are packed. Included after the tiles.
//
// Everything is cut into *units* of 32: query rows, keys, columns of a head. What one step of a product takes
// of an operand, 32 × 32, is a *pair* of tiles, 2 KiB in a row; sums are 32 × 32 f32, 4 KiB, four tiles whose
// rows are 128 bytes apart. Rows of a unit become a pair of tiles in one of three forms, for each unit of
// columns:
// - left: 16 rows × 32 columns each, as they are;
// - right, transposed: the transposes of these in 32-bit words, for products along the width;
// - right: word j of column n holds rows j and j + 16, for products along the rows.
// What meets the last has its columns in the order 0, 16, 1, 17, …: two vectors of 16 neighbours become one
// by a shift and a blend.
#pragma once

#include "backend/cpu/attention_words_impl.h"

namespace longspan::cpu {
namespace {

constexpr int kUnit = 32;
constexpr int kPanelUnits = kPanelKeys / kUnit;
constexpr int64_t kPairWords = 2 * kTileBytes / 4;  // of a pair of tiles
constexpr int64_t kTileWords = kTileBytes / 4;
constexpr int64_t kSumFloats = kUnit * kUnit;  // of a unit of sums
constexpr int64_t kSumRow = kUnit;             // distance of its rows
constexpr int64_t kSumRowBytes = 4 * kSumRow;

LONGSPAN_INLINE int64_t UnitsOf(int64_t width) { return (width + kUnit - 1) / kUnit; }

// ------------------------------------------------------------------------------------------------ packing

// The rows of a unit, somewhere in memory; those of width 0 count as zeros.
struct UnitRows {
  const uint16_t* data[kUnit];
  int64_t widths[kUnit];

  LONGSPAN_INLINE Words Load(int row, int64_t column) const {
    return LoadPairs(data[row] + column, widths[row] - column);
  }
};

// Those of a panel's unit, and zeros past its end; asks for those of the unit after it.
LONGSPAN_INLINE void FindKeys(const ConstRows& x, const KeyPanel& keys, int unit, int64_t width,
                              UnitRows* rows) {
  for (int j = 0; j < kUnit; ++j) {
    const int64_t key = unit * kUnit + j;
    rows->widths[j] = key < keys.count ? width : 0;
    rows->data[j] = RowOf(x, keys.row + (key < keys.count ? key : 0));
    PrefetchRow(x, keys.row + key + kUnit, width);
  }
}

// Rows that are not finite become zeros, for they may meet weights of 0, and 0 · ∞ is no zero. Returns their
// bits.
LONGSPAN_INLINE uint32_t DropNotFinite(UnitRows* rows) {
  uint32_t dropped = 0;
  for (int j = 0; j < kUnit; ++j) {
    if (IsFinite(rows->data[j], rows->widths[j])) continue;
    rows->widths[j] = 0;
    dropped |= 1u << j;
  }
  return dropped;
}

// To [unit of columns][pair]. The bits `flip` of each word are inverted.
LONGSPAN_INLINE void PackLeft(const UnitRows& rows, int64_t width, uint32_t flip, uint32_t* to) {
  const Words bits = _mm512_set1_epi32(static_cast<int>(flip));
  for (int64_t column = 0; column < width; column += kUnit, to += kPairWords)
    for (int j = 0; j < kUnit; ++j) StoreWords(to + j * kWords, _mm512_xor_si512(rows.Load(j, column), bits));
}

LONGSPAN_INLINE void PackRightTransposed(const UnitRows& rows, int64_t width, uint32_t* to) {
  for (int64_t column = 0; column < width; column += kUnit) {
    for (int half = 0; half < kUnit; half += kTileRows, to += kTileWords) {
      Words block[kTileRows];
#pragma GCC unroll 16
      for (int j = 0; j < kTileRows; ++j) block[j] = rows.Load(half + j, column);
      TransposeWords(block);
#pragma GCC unroll 16
      for (int j = 0; j < kTileRows; ++j) StoreWords(to + j * kWords, block[j]);
    }
  }
}

// Pairs of neighbouring units of columns lie `distance` words apart. Less `mean`, if there is one; rows of
// zeros stay zeros.
LONGSPAN_INLINE void PackRight(const UnitRows& rows, const float* mean, int64_t width, int64_t distance,
                               uint32_t* to) {
  const auto load = [&](int j, int64_t column) __attribute__((always_inline)) {
    return mean == nullptr ? rows.Load(j, column)
                           : LoadCentred(rows.data[j] + column, mean + column, rows.widths[j] - column);
  };
  for (int64_t column = 0; column < width; column += kUnit, to += distance) {
    for (int j = 0; j < kTileRows; ++j) {
      const Words x = load(j, column), y = load(j + kTileRows, column);
      StoreWords(to + j * kWords, InterleaveLow(x, y));
      StoreWords(to + kTileWords + j * kWords, InterleaveHigh(x, y));
    }
  }
}

LONGSPAN_INLINE void TransposeTile(uint32_t* tile) {
  Words block[kTileRows];
#pragma GCC unroll 16
  for (int j = 0; j < kTileRows; ++j) block[j] = LoadWords(tile + j * kWords);
  TransposeWords(block);
#pragma GCC unroll 16
  for (int j = 0; j < kTileRows; ++j) StoreWords(tile + j * kWords, block[j]);
}

// What sees row `row` of a unit packed to the left, or to the right transposed, shall know it by its score.
LONGSPAN_INLINE void SpoilLeft(uint32_t* left, int row) { left[row * kWords] = 0x7fc07fc0; }
LONGSPAN_INLINE void SpoilRightTransposed(uint32_t* right, int row) {
  right[row / kTileRows * kTileWords + row % kTileRows] = 0x7fc07fc0;
}

LONGSPAN_INLINE void ClearFloats(int64_t n, float* to) {
  __builtin_memset(to, 0, sizeof(float) * static_cast<size_t>(n));
}

// --------------------------------------------------------------------------------------------- arithmetic

// x − ⌊x⌋; 0 for infinities.
LONGSPAN_INLINE Vec Fraction(Vec x) { return _mm512_reduce_ps(x, 0x09); }
// x · 2^⌊y⌋.
LONGSPAN_INLINE Vec ScaleByFloor(Vec x, Vec y) { return _mm512_scalef_ps(x, y); }

// Keeps a value from being computed later than here: it is for the author to say what runs beside what.
LONGSPAN_INLINE void Keep(Vec& x) { __asm__ volatile("" : "+v"(x)); }
LONGSPAN_INLINE void Keep(Words& x) { __asm__ volatile("" : "+v"(x)); }

LONGSPAN_INLINE int64_t Bounded(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

// Scores are numbers in a unit of sums times this, and never 0 times, so that −∞ can stand for what is not
// seen.
LONGSPAN_INLINE float FactorOf(float scale, float soft_cap) {
  constexpr float kSmallest = 1.17549435e-38f;
  const float factor = (soft_cap != 0 ? 1.0f : scale) * kLog2E;
  return Magnitude(factor) < kSmallest ? kSmallest : factor;
}

// The upper halves of two vectors' words: word i is (upper half of low[i], upper half of high[i]).
LONGSPAN_INLINE Words PackUpperHalves(Words low, Words high) {
  return _mm512_mask_mov_epi16(_mm512_srli_epi32(low, 16), 0xaaaaaaaau, high);
}

}  // namespace
}  // namespace longspan::cpu
