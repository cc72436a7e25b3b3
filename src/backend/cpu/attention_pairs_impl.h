// What the bf16 kernels for dot-product instructions share: the register tile, packing, 2^x. `vdpbf16ps` adds
// the products of two *pairs* of neighbouring numbers to each f32 lane, so every operand is packed in 32-bit
// words of two bf16, in one of three forms:
// - rows: panels [words / 64][rows][64 words], padded by zeros to whole vectors; a word is broadcast;
// - width pairs: [word][64 keys], word i of a key its numbers 2i and 2i + 1, for products along the width;
// - row pairs: panels [width / 64][rows / 2][64 columns], a word the same column of rows 2i and 2i + 1.
//
// Tiles are those of f32: 6 rows × 64 columns in 24 accumulators. For each pair, 4 vectors and 6 broadcasts
// feed 24 instructions. Sums are f32 and restart from zero in each block.
#pragma once

#include "backend/cpu/attention_words_impl.h"

namespace longspan::cpu {
namespace {

static_assert(kTileColumns == kColumns && kColumns == kPanelKeys);

LONGSPAN_INLINE int64_t PairsOf(int64_t n) { return (n + 1) / 2; }
// Words of a row, whole vectors of them.
LONGSPAN_INLINE int64_t RowWords(int64_t width) { return RoundUp(PairsOf(width), kWords); }

LONGSPAN_INLINE Words Broadcast(const uint32_t* p) { return _mm512_set1_epi32(static_cast<int>(*p)); }
LONGSPAN_INLINE Vec Dot(Words a, Words b, Vec c) {
  return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
// 32 numbers rounded to nearest even, those of `low` first. Denormal ones become zero.
LONGSPAN_INLINE Words Narrow(Vec low, Vec high) {
  return reinterpret_cast<Words>(_mm512_cvtne2ps_pbh(high, low));
}

// ------------------------------------------------------------------------------------------ register tile

// c += a · b over n pairs: a is 6 rows of words a_row apart, its pairs a_step apart; b is [n][64] words.
// between() is called after each pair, where some registers are free.
template <int kVectors, class F>
LONGSPAN_INLINE void MultiplyAddPairs(Vec (&c)[kStripRows][kVectors], const uint32_t* a, int64_t a_row,
                                      int64_t a_step, const uint32_t* b, int64_t n, const F& between) {
#pragma GCC unroll 2
  for (int64_t k = 0; k < n; ++k) {
    Words row[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) row[j] = LoadWords(b + k * kColumns + j * kWords);
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r) {
      const Words x = Broadcast(a + r * a_row + k * a_step);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) c[r][j] = Dot(x, row[j], c[r][j]);
    }
    between();
  }
}
template <int kVectors>
LONGSPAN_INLINE void MultiplyAddPairs(Vec (&c)[kStripRows][kVectors], const uint32_t* a, int64_t a_row,
                                      int64_t a_step, const uint32_t* b, int64_t n) {
  MultiplyAddPairs(c, a, a_row, a_step, b, n, [] {});
}

// c += x · bᵀ over the width: x in row panels of x_rows rows, b as width pairs.
template <int kVectors, class F>
LONGSPAN_INLINE void MultiplyAddAlongWidth(Vec (&c)[kStripRows][kVectors], const uint32_t* x, int64_t x_rows,
                                           const uint32_t* b, int64_t width, const F& between) {
  for (int64_t begin = 0; begin < PairsOf(width); begin += kColumns)
    MultiplyAddPairs(c, x + begin * x_rows, kColumns, 1, b + begin * kColumns,
                     Least(kColumns, PairsOf(width) - begin), between);
}
template <int kVectors>
LONGSPAN_INLINE void MultiplyAddAlongWidth(Vec (&c)[kStripRows][kVectors], const uint32_t* x, int64_t x_rows,
                                           const uint32_t* b, int64_t width) {
  MultiplyAddAlongWidth(c, x, x_rows, b, width, [] {});
}

// ------------------------------------------------------------------------------------------------ packing

// A row of row panels of `rows` rows, for x of `full_width` numbers: its first `width`, then zeros; the bits
// `flip` of each word inverted.
LONGSPAN_INLINE void PackWords(const uint16_t* x, int64_t width, int64_t full_width, uint32_t flip,
                               uint32_t* panels, int64_t rows) {
  const Words bits = _mm512_set1_epi32(static_cast<int>(flip));
  for (int64_t i = 0; i < RowWords(full_width); i += kWords)
    StoreWords(panels + PanelOffset(i, rows), _mm512_xor_si512(LoadPairs(x + 2 * i, width - 2 * i), bits));
}

// One row of words of row-pair panels of `pairs` rows, less `mean` if there is one. Rows of length 0 count as
// zeros, whatever they point to.
LONGSPAN_INLINE void PackRowPair(const uint16_t* even, int64_t even_width, const uint16_t* odd,
                                 int64_t odd_width, const float* mean, int64_t width, uint32_t* panels,
                                 int64_t pairs) {
  for (int64_t i = 0; i < width; i += 2 * kWords) {
    const auto load = [&](const uint16_t* p, int64_t n) {
      return mean == nullptr ? LoadPairs(p + i, n - i) : LoadCentred(p + i, mean + i, n - i);
    };
    const Words x = load(even, even_width), y = load(odd, odd_width);
    uint32_t* to = panels + PanelOffset(i, pairs);
    StoreWords(to, InterleaveLow(x, y));
    StoreWords(to + kWords, InterleaveHigh(x, y));
  }
}

// The panel's keys, less `mean` if there is one, then zeros, as row pairs. These rows meet weights of 0, and
// 0 · ∞ is no zero: so a row that is not finite becomes zeros, and its bit is set in what is returned.
uint64_t PackKeyPairs(const ConstRows& x, const KeyPanel& keys, const float* mean, int64_t width,
                      uint32_t* panels, int64_t pairs) {
  uint64_t not_finite = 0;
  for (int64_t j = 0; j < kPanelKeys; j += 2) {
    int64_t widths[2] = {0, 0};
    for (int64_t i = 0; i < 2 && j + i < keys.count; ++i) {
      PrefetchRow(x, keys.row + j + i + kPrefetchRows, width);
      const bool is_finite = IsFinite(RowOf(x, keys.row + j + i), width);
      widths[i] = is_finite ? width : 0;
      not_finite |= static_cast<uint64_t>(!is_finite) << (j + i);
    }
    PackRowPair(RowOf(x, keys.row + j), widths[0], RowOf(x, keys.row + j + 1), widths[1], mean, width,
                panels + j / 2 * kColumns, pairs);
  }
  return not_finite;
}

// The panel's keys, then zeros, as width pairs: [RowWords(width)][64].
void PackWidthPairs(const ConstRows& x, const KeyPanel& keys, int64_t width, uint32_t* to) {
  for (int64_t j = 0; j < kPanelKeys; j += kWords) {
    for (int64_t i = 0; i < kWords; ++i) PrefetchRow(x, keys.row + j + i + kPrefetchRows, width);
    for (int64_t word = 0; word < RowWords(width); word += kWords) {
      Words block[kWords];
#pragma GCC unroll 16
      for (int i = 0; i < kWords; ++i)
        block[i] =
            LoadPairs(RowOf(x, keys.row + j + i) + 2 * word, j + i < keys.count ? width - 2 * word : 0);
      TransposeWords(block);
#pragma GCC unroll 16
      for (int i = 0; i < kWords; ++i) StoreWords(to + (word + i) * kPanelKeys + j, block[i]);
    }
  }
}

// --------------------------------------------------------------------------------------------- arithmetic

// 2^x for any x: relative error 3e-6, a hundredth of what rounding to bf16 adds; exactly 1 at 0 and 0 at −∞;
// NaN stays NaN. Only the polynomial takes the unit of the products.
struct Exp2Coefficients {
  float c[5] = {1.0f, 0.6930448413f, 0.2412801981f, 0.05224247649f, 0.01342668384f};
};
LONGSPAN_INLINE Vec Exp2ForBf16(Vec x, const Exp2Coefficients& coefficients = {}) {
  const float* c = coefficients.c;
  const Vec f = _mm512_reduce_ps(x, 0x09);  // x − ⌊x⌋
  Vec p = Fma(Set(c[4]), f, Set(c[3]));
  p = Fma(p, f, Set(c[2]));
  p = Fma(p, f, Set(c[1]));
  p = Fma(p, f, Set(c[0]));
  return _mm512_scalef_ps(p, x);  // p · 2^⌊x⌋
}

// One number for each row of a strip in a vector's first lanes: loaded (the other lanes are 0) and stored.
constexpr __mmask16 kStripLanes = (1 << kStripRows) - 1;
LONGSPAN_INLINE Vec LoadStrip(const float* p) { return _mm512_maskz_loadu_ps(kStripLanes, p); }
LONGSPAN_INLINE void StoreStrip(float* p, Vec x) { _mm512_mask_storeu_ps(p, kStripLanes, x); }

// f over the lanes of each of six vectors, the results in the first six lanes; the others are meaningless.
template <class F>
LONGSPAN_INLINE Vec ReduceStrip(const Vec (&x)[kStripRows], const F& f) {
  static_assert(kStripRows == 6);
  const auto halves = [&](Vec a, Vec b) __attribute__((always_inline)) {
    return f(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  };
  const auto quarters = [&](Vec ab, Vec cd) __attribute__((always_inline)) {
    return f(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  };
  const Vec last = halves(x[4], x[5]);
  const Vec a = quarters(halves(x[0], x[1]), halves(x[2], x[3])), b = quarters(last, last);
  // Four lanes of each row: rows 0 to 3 in a, 4, 5, 4, 5 in b.
  const Vec pairs = f(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));  // a, b, a, b
  const Vec all = f(pairs, _mm512_permute_ps(pairs, 0x4e));
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), all);
}
LONGSPAN_INLINE Vec MaxOfRows(const Vec (&x)[kStripRows]) {
  return ReduceStrip(
      x, [](Vec a, Vec b) __attribute__((always_inline)) { return Max(a, b); });
}
LONGSPAN_INLINE Vec SumOfRows(const Vec (&x)[kStripRows]) {
  return ReduceStrip(
      x, [](Vec a, Vec b) __attribute__((always_inline)) { return Add(a, b); });
}

// Scores are scale · q·k. The sign of the scale goes into the packed queries, exactly: the largest product is
// then the largest score.
LONGSPAN_INLINE uint32_t SignFlip(float scale) { return scale < 0 ? 0x80008000u : 0; }

}  // namespace
}  // namespace longspan::cpu
