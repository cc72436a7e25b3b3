// What the forward and the backward kernels share: the register tile, packing, 2^x. See attention_impl.h.
//
// One packed form serves all operands with a row per token: *panels* of 64 columns, [width / 64][rows][64],
// the last one filled up with zeros to a multiple of 16. Keys and values that meet a product along their
// width are transposed instead: [width][64 keys].
#pragma once

#include <cstdint>

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/transpose_impl.h"

namespace longspan::cpu {
namespace {

constexpr int kStripRows = 6;
constexpr int kColumns = 64;  // of a panel, and the distance of its rows
constexpr int kTileColumns = kTileVectors * kLanes;
constexpr float kLog2E = 1.44269504f;
constexpr float kNegativeInfinity = -__builtin_inff();
constexpr float kLowest = -3.40282347e38f;  // finite

LONGSPAN_INLINE int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
LONGSPAN_INLINE int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
// Floats of a row once it is cut into panels.
LONGSPAN_INLINE int64_t PanelWidth(int64_t width) { return RoundUp(width, kColumns); }

// --------------------------------------------------------------------------------------- register tile

// c += a · b: a is 6 rows a_row apart, its columns a_step apart; b is n rows of a panel.
template <int kVectors>
LONGSPAN_INLINE void MultiplyAdd(Vec (&c)[kStripRows][kVectors], const float* a, int64_t a_row,
                                 int64_t a_step, const float* b, int64_t n) {
#pragma GCC unroll 2
  for (int64_t k = 0; k < n; ++k) {
    Vec row[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) row[j] = Load(b + k * kColumns + j * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r) {
      const Vec x = Set(a[r * a_row + k * a_step]);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) c[r][j] = Fma(x, row[j], c[r][j]);
    }
  }
}

template <int kVectors>
LONGSPAN_INLINE void Clear(Vec (&c)[kStripRows][kVectors]) {
#pragma GCC unroll 8
  for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) c[r][j] = Set(0);
}

template <int kValue>
struct Int {
  static constexpr int value = kValue;
};

// Calls f(Int<vectors>, column) for the register tiles that cover `width` columns rounded up to 16.
template <class F>
LONGSPAN_INLINE void ForTileColumns(int64_t width, const F& f) {
  int64_t column = 0;
  for (; column + kTileColumns <= RoundUp(width, 16); column += kTileColumns) f(Int<kTileVectors>(), column);
  if constexpr (kTileColumns > 16) {  // 64: what is left is 16, 32 or 48
    const int64_t left = RoundUp(width, 16) - column;
    if (left == 16) f(Int<1>(), column);
    if (left == 32) f(Int<2>(), column);
    if (left == 48) f(Int<3>(), column);
  }
}

// Where column `column` of row 0 lies in panels of so many rows.
LONGSPAN_INLINE int64_t PanelOffset(int64_t column, int64_t rows) {
  return column / kColumns * rows * kColumns + column % kColumns;
}

// c += x · bᵀ over the width: x in panels of x_rows rows, b transposed.
template <int kVectors>
LONGSPAN_INLINE void MultiplyAddAlongWidth(Vec (&c)[kStripRows][kVectors], const float* x, int64_t x_rows,
                                           const float* b, int64_t width) {
  for (int64_t begin = 0; begin < width; begin += kColumns)
    MultiplyAdd(c, x + begin * x_rows, kColumns, 1, b + begin * kColumns, Least(kColumns, width - begin));
}

// -------------------------------------------------------------------------------------------- packing

template <bool kBf16>
LONGSPAN_INLINE Vec LoadFrom(const void* data, int64_t i) {
  if constexpr (kBf16) {
    return LoadBf16(static_cast<const uint16_t*>(data) + i);
  } else {
    return Load(static_cast<const float*>(data) + i);
  }
}

// to[i … i + n) ← x's first n lanes, n ≤ kLanes.
LONGSPAN_INLINE void StoreTo(void* to, bool is_bf16, int64_t i, Vec x, int64_t n) {
  float lanes[kLanes];
  uint16_t halves[kLanes];
  if (is_bf16) {
    StoreBf16(n == kLanes ? static_cast<uint16_t*>(to) + i : halves, x);
    if (n < kLanes)
      for (int64_t j = 0; j < n; ++j) static_cast<uint16_t*>(to)[i + j] = halves[j];
  } else {
    Store(n == kLanes ? static_cast<float*>(to) + i : lanes, x);
    if (n < kLanes)
      for (int64_t j = 0; j < n; ++j) static_cast<float*>(to)[i + j] = lanes[j];
  }
}

template <bool kBf16>
void CopyRow(const void* data, int64_t begin, int64_t width, float scale, float* panels, int64_t rows) {
  const Vec factor = Set(scale);
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    Store(panels + PanelOffset(i, rows), Mul(LoadFrom<kBf16>(data, begin + i), factor));
  for (; i < width; ++i) panels[PanelOffset(i, rows)] = ScalarFrom<kBf16>(data, begin + i) * scale;
  for (; i < RoundUp(width, 16); ++i) panels[PanelOffset(i, rows)] = 0;
}

// A row of panels of `rows` rows = scale · row `row` of x.
LONGSPAN_INLINE void PackRow(const ConstRows& x, int64_t row, int64_t width, float scale, float* panels,
                             int64_t rows) {
  if (x.is_bf16) {
    CopyRow<true>(x.data, row * x.stride, width, scale, panels, rows);
  } else {
    CopyRow<false>(x.data, row * x.stride, width, scale, panels, rows);
  }
}

LONGSPAN_INLINE void ClearRow(int64_t width, float* panels, int64_t rows) {
  for (int64_t i = 0; i < RoundUp(width, 16); i += kLanes) Store(panels + PanelOffset(i, rows), Set(0));
}

// Whether a packed row holds neither a NaN nor an infinity.
LONGSPAN_INLINE bool IsFinite(const float* panels, int64_t rows, int64_t width) {
  Vec sum = Set(0);
  for (int64_t i = 0; i < width; i += kLanes) sum = Fma(Load(panels + PanelOffset(i, rows)), Set(0), sum);
  return SumOf(sum) == 0;
}

// Panels of `rows` rows from their row 0 on: the panel's keys, then zeros up to 64. A row of these meets
// weights of 0, and 0 · ∞ is no zero: so a row that is not finite becomes zeros, and its bit is set in what
// is returned.
LONGSPAN_INLINE uint64_t PackKeyRows(const ConstRows& x, const KeyPanel& keys, int64_t width, float* panels,
                                     int64_t rows) {
  uint64_t not_finite = 0;
  for (int64_t j = 0; j < kPanelKeys; ++j) {
    float* row = panels + j * kColumns;
    if (j < keys.count) PackRow(x, keys.row + j, width, 1, row, rows);
    if (j < keys.count && IsFinite(row, rows, width)) continue;
    not_finite |= static_cast<uint64_t>(j < keys.count) << j;
    ClearRow(width, row, rows);
  }
  return not_finite;
}

template <bool kBf16>
void TransposeKeys(const ConstRows& x, const KeyPanel& keys, int64_t width, float* transposed) {
  Transpose<kBf16>(x.data, keys.row * x.stride, x.stride, keys.count, width, transposed, kPanelKeys);
  for (int64_t d = 0; d < width && keys.count < kPanelKeys; ++d)
    for (int64_t j = keys.count; j < kPanelKeys; ++j) transposed[d * kPanelKeys + j] = 0;
}

// [width][64]: the panel's keys, then zeros.
LONGSPAN_INLINE void PackTransposed(const ConstRows& x, const KeyPanel& keys, int64_t width,
                                    float* transposed) {
  if (x.is_bf16) {
    TransposeKeys<true>(x, keys, width, transposed);
  } else {
    TransposeKeys<false>(x, keys, width, transposed);
  }
}

// ----------------------------------------------------------------------------------------- arithmetic

// 2^x for x ≤ 0 or a little above: relative error 1.5e-7, exactly 1 at 0 and 0 from −127 down (−∞ too). NaN
// stays NaN.
LONGSPAN_INLINE Vec Exp2(Vec x) {
  const Vec shift = Set(12582912.0f);  // 1.5 · 2^23: adding it rounds to an integer
  const Vec bounded = Max(Set(-127.0f), x);
  const Vec shifted = Add(bounded, shift);
  const Vec f = Sub(bounded, Sub(shifted, shift));  // in [−½, ½]
  Vec p = Fma(Set(0.00132764722f), f, Set(0.00967554133f));
  p = Fma(p, f, Set(0.0555071327f));
  p = Fma(p, f, Set(0.240221197f));
  p = Fma(p, f, Set(0.693146967f));
  p = Fma(p, f, Set(1.0f));
  // At −127 p is 1, whose exponent field 127 becomes 0: a true zero.
  return ScaleByPower(p, shifted);
}

LONGSPAN_INLINE float ScalarExp2(float x) {
  float lanes[kLanes];
  Store(lanes, Exp2(Set(x)));
  return lanes[0];
}

// tanh x: relative error 3e-7. With e^2x = 2^n · 2^f it is t / (t + 2) for t = e^2x − 1, and t is put
// together from 2^f − 1, so that nothing cancels near 0. NaN stays NaN.
LONGSPAN_INLINE Vec Tanh(Vec x) {
  const Vec shift = Set(12582912.0f);                        // 1.5 · 2^23: adding it rounds to an integer
  const Vec bounded = Min(Set(10.0f), Max(Set(-10.0f), x));  // tanh is ±1 there
  const Vec y = Mul(bounded, Set(2 * kLog2E));
  const Vec shifted = Add(y, shift);
  const Vec f = Sub(y, Sub(shifted, shift));  // in [−½, ½]
  Vec p = Fma(Set(0.000154531634f), f, Set(0.00133908633f));
  p = Fma(p, f, Set(0.00961808302f));
  p = Fma(p, f, Set(0.0555035695f));
  p = Fma(p, f, Set(0.240226507f));
  p = Mul(Fma(p, f, Set(0.693147182f)), f);
  const Vec power = ScaleByPower(Set(1), shifted);
  const Vec t = Fma(power, p, Sub(power, Set(1)));
  return Div(t, Add(t, Set(2)));
}

// cap · tanh(factor · x) in place of each x.
template <int kVectors>
LONGSPAN_INLINE void Cap(Vec (&c)[kStripRows][kVectors], float factor, float cap) {
#pragma GCC unroll 8
  for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) c[r][j] = Mul(Tanh(Mul(c[r][j], Set(factor))), Set(cap));
}

// x[0 … n) += v for n ≤ kLanes.
LONGSPAN_INLINE void AddTo(float* x, Vec v, int64_t n) {
  if (n >= kLanes) {
    Store(x, Add(Load(x), v));
    return;
  }
  float lanes[kLanes];
  Store(lanes, v);
  for (int64_t i = 0; i < n; ++i) x[i] += lanes[i];
}

// Lowest and one past the highest bit set; bits ≠ 0.
LONGSPAN_INLINE int LowestBit(uint64_t bits) { return __builtin_ctzll(bits); }
LONGSPAN_INLINE int EndBit(uint64_t bits) { return 64 - __builtin_clzll(bits); }

// Whether some row of the strip sees one of the six keys from `key` on, which may lie in two panels.
LONGSPAN_INLINE bool SeesAnyOfSix(const TileMask* tiles, int num_panels, int64_t key) {
  constexpr uint64_t kSix = (1u << kStripRows) - 1;
  const int64_t panel = key / kPanelKeys, bit = key % kPanelKeys;
  uint64_t seen = tiles[panel].any >> bit;
  if (bit > kPanelKeys - kStripRows && panel + 1 < num_panels)
    seen |= tiles[panel + 1].any << (kPanelKeys - bit);
  return (seen & kSix) != 0;
}

struct StripRange {
  int64_t begin, end;
};
// All strips of a query block that see one of the six keys from `key` on lie in this range.
LONGSPAN_INLINE StripRange StripsThatSeeSix(const TileMask* tiles, int num_panels, int64_t num_strips,
                                            int64_t key) {
  int64_t begin = 0, end = num_strips;
  while (begin < end && !SeesAnyOfSix(tiles + begin * num_panels, num_panels, key)) ++begin;
  while (begin < end && !SeesAnyOfSix(tiles + (end - 1) * num_panels, num_panels, key)) --end;
  return {begin, end};
}

// --------------------------------------------------------------------------------------------- results

// to[begin … begin + width) ← a row of panels of `rows` rows / divisor.
LONGSPAN_INLINE void StoreRow(const float* panels, int64_t rows, int64_t width, float divisor, void* to,
                              bool is_bf16, int64_t begin) {
  for (int64_t i = 0; i < width; i += kLanes)
    StoreTo(to, is_bf16, begin + i, Div(Load(panels + PanelOffset(i, rows)), Set(divisor)),
            Least(kLanes, width - i));
}

// The state of row `row`, or its output: `panels` is that row of panels of `rows` rows, unnormalised.
LONGSPAN_INLINE void StoreForwardRow(const ForwardHead& head, int64_t row, float max, float sum,
                                     const float* panels, int64_t rows) {
  if (!head.last) {
    head.state_max.data[row * head.state_max.stride] = max;
    head.state_sum.data[row * head.state_sum.stride] = sum;
    StoreRow(panels, rows, head.value_width, 1, head.state_out.data + row * head.state_out.stride, false, 0);
    return;
  }
  // The largest weight of a row that sees a key is 1; of one that sees none, out is 0.
  const bool saw_nothing = sum == 0;
  float lse = kNegativeInfinity, divisor = saw_nothing ? 1.0f : sum;
  if (head.has_sink && !saw_nothing) {
    divisor += __builtin_expf(head.sink - max);  // may be infinite: out is 0 then
    lse = head.sink > max ? head.sink + __builtin_logf(1 + sum * __builtin_expf(max - head.sink))
                          : max + __builtin_logf(divisor);
  } else if (!saw_nothing) {
    lse = max + __builtin_logf(sum);
  }
  head.lse.data[row * head.lse.stride] = lse;
  StoreRow(panels, rows, head.value_width, divisor, head.out, head.out_is_bf16, row * head.out_stride);
}

// The keys' rows of `to` += factor · those of panels of `rows` rows.
LONGSPAN_INLINE void AddRows(const float* panels, int64_t rows, const KeyPanel& keys, int64_t width,
                             float factor, const FloatRows& to) {
  for (int64_t j = 0; j < keys.count; ++j)
    for (int64_t i = 0; i < width; i += kLanes)
      AddTo(to.data + (keys.row + j) * to.stride + i,
            Mul(Load(panels + PanelOffset(i, rows) + j * kColumns), Set(factor)), width - i);
}

}  // namespace
}  // namespace longspan::cpu
