// What the bf16 kernels for dot-product instructions share: the register tile, packing, 2^x. `vdpbf16ps` adds
// the products of two *pairs* of neighbouring numbers to each f32 lane, so every operand is packed in 32-bit
// words of two bf16, in one of three forms:
// - rows: panels [words / 64][rows][64 words], padded by zeros to whole vectors; a word is broadcast;
// - width pairs: [word][64 keys], word i of a key its numbers 2i and 2i + 1: keys and values that meet a
// product
//   along their width;
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
template <int kVectors>
LONGSPAN_INLINE void MultiplyAddPairs(Vec (&c)[kStripRows][kVectors], const uint32_t* a, int64_t a_row,
                                      int64_t a_step, const uint32_t* b, int64_t n) {
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
  }
}

// c += x · bᵀ over the width: x in row panels of x_rows rows, b as width pairs.
template <int kVectors>
LONGSPAN_INLINE void MultiplyAddAlongWidth(Vec (&c)[kStripRows][kVectors], const uint32_t* x, int64_t x_rows,
                                           const uint32_t* b, int64_t width) {
  for (int64_t begin = 0; begin < PairsOf(width); begin += kColumns)
    MultiplyAddPairs(c, x + begin * x_rows, kColumns, 1, b + begin * kColumns,
                     Least(kColumns, PairsOf(width) - begin));
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

// 2^x for x ≤ 0: relative error 3e-6, a hundredth of what rounding to bf16 adds; exactly 1 at 0 and 0 from
// −127 down (−∞ too). NaN stays NaN.
LONGSPAN_INLINE Vec Exp2ForBf16(Vec x) {
  const Vec shift = Set(12582912.0f);  // 1.5 · 2^23: adding it rounds to an integer
  const Vec bounded = Max(Set(-127.0f), x);
  const Vec shifted = Add(bounded, shift);
  const Vec f = Sub(bounded, Sub(shifted, shift));  // in [−½, ½]
  Vec p = Fma(Set(0.009582853876f), f, Set(0.05590642989f));
  p = Fma(p, f, Set(0.2402409911f));
  p = Fma(p, f, Set(0.6931241751f));
  p = Fma(p, f, Set(1.0f));
  return ScaleByPower(p, shifted);
}

// Scores are scale · q·k. The sign of the scale goes into the packed queries, exactly: the largest product is
// then the largest score.
LONGSPAN_INLINE uint32_t SignFlip(float scale) { return scale < 0 ? 0x80008000u : 0; }

}  // namespace
}  // namespace longspan::cpu
