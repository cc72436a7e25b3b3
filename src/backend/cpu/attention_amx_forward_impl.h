// The forward kernels on tiles. See attention_amx_impl.h.
//
// A strip of 32 rows goes through the units of keys that it sees, one at a time: scores, masked to −∞,
// weights, and after at most kBatch units their product with the values. The maximum that keeps the weights
// in range comes almost for nothing: they are P = 2^(factor · (score − M) − 60), M being some earlier maximum
// of the row. bf16 has f32's exponents, so a row may outgrow its M by 60 binades; one that does shows as P ≥
// 2, bit 14 of a bf16, and so do infinities and NaN. The bits of all weights are gathered as they are stored,
// and only if one has it are the rows looked at, given their new maximum and computed again, while their
// scores and weights are still at hand (Redo). M of a row that has seen nothing is −∞, which makes its
// weights infinite or NaN. A row's bits depend on nothing but the scores that it sees; if these are equal,
// weights are exact and so is the mean of the values.
#pragma once

#include "backend/cpu/attention_amx_impl.h"

namespace longspan::cpu {
namespace {

constexpr BlockSize kForwardBlock = {512, 16, kUnit};
constexpr int kStrips = kForwardBlock.rows / kUnit;
constexpr int kBatch = 4;  // units of keys whose weights meet the values at once

constexpr float kHeadroom = 60;  // binades

// The rows of a strip between two units. Scores are those of q·k, or capped ones.
struct alignas(64) StripRows {
  float max[kUnit];    // M above
  float scale[kUnit];  // by which the output so far must be scaled before the batch's values are added
  bool is_fresh;       // no unit seen yet
  bool must_scale;     // some scale is not 1
  int turn;            // which of the two sums holds
};

// Sums of a strip's weights, lane by lane, [turn][row][16]: those with a unit are written beside those before
// it.
constexpr int64_t kTurnSums = kUnit * kLanes;

struct ForwardScratch {
  int64_t q_words, out_floats;  // of a strip
  uint32_t* q;                  // [strip][unit of columns][pair], left
  float* out;                   // [strip][unit of columns][32][32], unnormalised
  float* sums;                  // [strip][2 · kTurnSums]
  StripRows* rows;              // [strip]
  uint32_t* weights;            // [kBatch][pair], left
  float* scores;                // [kBatch][32][32]
  float* row;                   // [value width in whole units]

  ForwardScratch(const ForwardHead& head, float* scratch)
      : q_words(UnitsOf(head.width) * kPairWords),
        out_floats(UnitsOf(head.value_width) * kSumFloats),
        q(reinterpret_cast<uint32_t*>(scratch)),
        out(scratch + kStrips * q_words),
        sums(out + kStrips * out_floats),
        rows(reinterpret_cast<StripRows*>(sums + kStrips * 2 * kTurnSums)),
        weights(reinterpret_cast<uint32_t*>(rows + kStrips)),
        scores(reinterpret_cast<float*>(weights + kBatch * kPairWords)),
        row(scores + kBatch * kSumFloats) {}
};

int64_t ForwardScratchFloats(int64_t width, int64_t value_width) {
  constexpr int64_t kRowsFloats = sizeof(StripRows) / sizeof(float);
  return kStrips *
             (UnitsOf(width) * kPairWords + UnitsOf(value_width) * kSumFloats + 2 * kTurnSums + kRowsFloats) +
         kBatch * (kPairWords + kSumFloats) + UnitsOf(value_width) * kUnit;
}

// A packed unit of keys: [unit of columns][pair] of keys, right transposed, then the same of values, right. A
// panel is two of these.
LONGSPAN_INLINE int64_t KeyUnitWords(int64_t width, int64_t value_width) {
  return (UnitsOf(width) + UnitsOf(value_width)) * kPairWords;
}

int64_t PanelFloats(int64_t width, int64_t value_width) {
  return kPanelUnits * KeyUnitWords(width, value_width);
}

void PackPanel(const ConstRows& k, const ConstRows& v, int64_t width, int64_t value_width,
               const KeyPanel& keys, float* panel) {
  auto* to = reinterpret_cast<uint32_t*>(panel);
  for (int unit = 0; unit < kPanelUnits; ++unit, to += KeyUnitWords(width, value_width)) {
    UnitRows rows;
    FindKeys(k, keys, unit, width, &rows);
    PackRightTransposed(rows, width, to);
    FindKeys(v, keys, unit, value_width, &rows);
    for (uint32_t dropped = DropNotFinite(&rows); dropped != 0; dropped &= dropped - 1)
      SpoilRightTransposed(to, LowestBit(dropped));
    PackRight(rows, nullptr, value_width, kPairWords, to + UnitsOf(width) * kPairWords);
  }
}

// ------------------------------------------------------------------------------------------------- begin

LONGSPAN_INLINE float* OutAt(const ForwardScratch& s, int64_t strip, int64_t r, int64_t column) {
  return s.out + strip * s.out_floats + column / kUnit * kSumFloats + r * kSumRow + column % kUnit;
}

// The state between calls: M and a sum of weights as above.
void LoadStateRow(const ForwardHead& head, const ForwardScratch& s, int64_t strip, int64_t r, int64_t row) {
  s.rows[strip].max[r] = head.state_max.data[row * head.state_max.stride];
  s.sums[strip * 2 * kTurnSums + r * kLanes] = head.state_sum.data[row * head.state_sum.stride];
  const ConstRows state_out = {head.state_out.data, head.state_out.stride, false};
  PackRow(state_out, row, head.value_width, 1, s.row, 1);
  for (int64_t column = 0; column < head.value_width; column += kLanes)
    Store(OutAt(s, strip, r, column), Load(s.row + column));
}

void ForwardBegin(const ForwardHead& head, const QueryBlock& queries, float* scratch) {
  const FlushDenormals flush;
  const ForwardScratch s(head, scratch);
  const uint32_t flip = head.scale < 0 ? 0x80008000u : 0;  // the largest product is then the largest score
  for (int64_t strip = 0; strip * kUnit < queries.num_rows; ++strip) {
    UnitRows q;
    StripRows& rows = s.rows[strip];
    rows.is_fresh = head.first;
    rows.must_scale = false;
    rows.turn = 0;
    ClearFloats(s.out_floats, s.out + strip * s.out_floats);
    ClearFloats(kTurnSums, s.sums + strip * 2 * kTurnSums);
    for (int64_t r = 0; r < kUnit; ++r) {
      const int64_t index = strip * kUnit + r;
      const bool exists = index < queries.num_rows;
      const int64_t row = queries.rows[exists ? index : 0];
      PrefetchRow(head.q, queries.rows[Least(index + kPrefetchRows, queries.num_rows - 1)], head.width);
      q.data[r] = RowOf(head.q, row);
      q.widths[r] = exists ? head.width : 0;
      rows.max[r] = kNegativeInfinity;
      rows.scale[r] = 1;
      if (exists && !head.first) LoadStateRow(head, s, strip, r, row);
    }
    PackLeft(q, head.width, flip, s.q + strip * s.q_words);
  }
}

// ------------------------------------------------------------------------------------------------ scores

// Scores become soft_cap · tanh(scale · score / soft_cap).
__attribute__((noinline)) void CapScores(float scale, float soft_cap, float* scores) {
  for (int64_t i = 0; i < kSumFloats; i += kLanes)
    Store(scores + i, Mul(Tanh(Mul(Load(scores + i), Set(scale / soft_cap))), Set(soft_cap)));
}

// Those that a row doesn't see become −∞; rows' bits from `shift` on are those of this unit's keys.
__attribute__((noinline)) void HideScores(const uint64_t* rows, int shift, float* scores) {
  const Vec hidden = Set(kNegativeInfinity);
  for (int64_t r = 0; r < kUnit; ++r) {
    float* row = scores + r * kSumRow;
    const uint64_t bits = rows[r] >> shift;
    Store(row, Select(bits, Load(row), hidden));
    Store(row + kLanes, Select(bits >> kLanes, Load(row + kLanes), hidden));
  }
}

// max[row] = the largest of the row's scores; NaN if one is.
__attribute__((noinline)) void LargestScores(const float* scores, float* max) {
  for (int64_t r = 0; r < kUnit; ++r) {
    const Vec left = Load(scores + r * kSumRow), right = Load(scores + r * kSumRow + kLanes);
    const bool has_nan = _mm512_cmp_ps_mask(left, right, _CMP_UNORD_Q) != 0;
    max[r] = has_nan ? __builtin_nanf("") : MaxOf(Max(left, right));
  }
}

// ----------------------------------------------------------------------------------------------- weights

// 2^y: relative error 3e-6, a thousandth of what rounding to bf16 adds.
LONGSPAN_INLINE Vec Weight(Vec y) {
  const Vec f = Fraction(y);
  Vec p = Fma(Set(0.01342668384f), f, Set(0.05224247277f));
  p = Fma(p, f, Set(0.2412801981f));
  p = Fma(p, f, Set(0.6930448413f));
  p = Fma(p, f, Set(1.0f));
  return ScaleByFloor(p, y);
}

// The upper 16 bits are the bf16 nearest to x.
LONGSPAN_INLINE Words RoundUpper(Vec x) {
  return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}
// A row's weights in a unit, and what they add to the row's lane sums.
struct RowWeights {
  Words packed;
  Vec sum;

  LONGSPAN_INLINE RowWeights(const float* scores, Vec max, Vec factor) {
    const Vec headroom = Set(-kHeadroom);
    const Vec left = Weight(Fma(Sub(Load(scores), max), factor, headroom));
    const Vec right = Weight(Fma(Sub(Load(scores + kLanes), max), factor, headroom));
    packed = PackUpperHalves(RoundUpper(left), RoundUpper(right));
    sum = Add(left, right);
  }
};

// The weights of a unit, and sums with them beside those before. Returns whether some weight is 2 or more,
// infinite or NaN.
bool Weights(const float* scores, float factor, const float* max, const float* sums_before, float* sums,
             uint32_t* weights) {
  Words all = _mm512_setzero_si512();
  for (int64_t r = 0; r < kUnit; ++r) {
    const RowWeights w(scores + r * kSumRow, Set(max[r]), Set(factor));
    StoreWords(weights + r * kWords, w.packed);
    Store(sums + r * kLanes, Add(Load(sums_before + r * kLanes), w.sum));
    all = _mm512_or_si512(all, w.packed);
  }
  return _mm512_test_epi32_mask(all, _mm512_set1_epi32(0x40004000)) != 0;
}

// A row of weights times a number.
LONGSPAN_INLINE void ScaleWeights(uint32_t* weights, float scale) {
  const Words old = LoadWords(weights), upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const Vec left = _mm512_castsi512_ps(_mm512_slli_epi32(old, 16));
  const Vec right = _mm512_castsi512_ps(_mm512_and_si512(old, upper));
  StoreWords(weights, PackUpperHalves(RoundUpper(Mul(left, Set(scale))), RoundUpper(Mul(right, Set(scale)))));
}

// Rows whose weights in unit `unit` of a batch are too large: a new maximum, and all that is there already
// scaled to it. `scores` are the unit's, `weights` the batch's.
__attribute__((noinline)) void Redo(const float* scores, float factor, StripRows* rows,
                                    const float* sums_before, float* sums, uint32_t* weights, int unit) {
  float max[kUnit];
  LargestScores(scores, max);
  for (int64_t r = 0; r < kUnit; ++r) {
    const float old_max = rows->max[r];
    const bool saw_nothing = old_max == kNegativeInfinity;
    if (!saw_nothing && !((max[r] - old_max) * factor - kHeadroom >= 1)) continue;
    uint32_t* const row_weights = weights + r * kWords;
    Vec sum = Load(sums_before + r * kLanes);
    if (max[r] == kNegativeInfinity) {
      ClearWords(kWords, row_weights + unit * kPairWords);
      Store(sums + r * kLanes, sum);
      continue;
    }
    rows->max[r] = max[r];
    if (!saw_nothing) {
      const float scale = ScalarExp2((old_max - max[r]) * factor);
      rows->scale[r] *= scale;
      rows->must_scale = true;
      sum = Mul(sum, Set(scale));
      for (int before = 0; before < unit; ++before) ScaleWeights(row_weights + before * kPairWords, scale);
    }
    const RowWeights w(scores + r * kSumRow, Set(max[r]), Set(factor));
    StoreWords(row_weights + unit * kPairWords, w.packed);
    Store(sums + r * kLanes, Add(sum, w.sum));
  }
}

// ------------------------------------------------------------------------------------------------- strips

// A unit of keys that some row of a strip sees.
struct VisibleUnit {
  const uint32_t *keys, *values;
  const uint64_t* rows;  // the mask's words, null: all is seen
  int shift;             // of this unit's bits in them
};

// Those of a strip: at most so many. Returns their number.
constexpr int kMostUnits = kForwardBlock.panels * kPanelUnits;
int FindVisible(const ForwardHead& head, const uint32_t* panels, int num_panels, const TileMask* tiles,
                VisibleUnit* visible) {
  const int64_t unit_words = KeyUnitWords(head.width, head.value_width);
  int n = 0;
  for (int panel = 0; panel < num_panels; ++panel) {
    for (int unit = 0; unit < kPanelUnits; ++unit) {
      const uint32_t* keys = panels + (panel * kPanelUnits + unit) * unit_words;
      const int shift = unit * kUnit;
      if ((tiles[panel].any >> shift & 0xffffffffu) == 0) continue;
      visible[n++] = {keys, keys + UnitsOf(head.width) * kPairWords, tiles[panel].rows, shift};
    }
  }
  return n;
}

// What rows with a new maximum have put out so far.
__attribute__((noinline)) void ScaleOut(const ForwardScratch& s, int64_t strip) {
  StripRows& rows = s.rows[strip];
  for (int64_t r = 0; r < kUnit; ++r) {
    if (rows.scale[r] == 1) continue;
    for (int64_t column = 0; column < s.out_floats / kUnit; column += kLanes) {
      float* out = OutAt(s, strip, r, column);
      Store(out, Mul(Load(out), Set(rows.scale[r])));
    }
    rows.scale[r] = 1;
  }
  rows.must_scale = false;
}

void ForwardStrip(const ForwardHead& head, const ForwardScratch& s, int64_t strip, const VisibleUnit* visible,
                  int num_visible) {
  const float factor = FactorOf(Magnitude(head.scale), head.soft_cap);
  const uint32_t* q = s.q + strip * s.q_words;
  StripRows& rows = s.rows[strip];
  for (int begin = 0; begin < num_visible; begin += kBatch) {
    const int n = static_cast<int>(Least(kBatch, num_visible - begin));
    for (int i = 0; i < n; ++i) {
      const VisibleUnit& unit = visible[begin + i];
      float* const scores = s.scores + i * kSumFloats;
      Multiply<true>(
          UnitsOf(head.width), [&](int64_t k) { return q + k * kPairWords; },
          [&](int64_t k) { return unit.keys + k * kPairWords; }, scores);
      if (head.soft_cap != 0) CapScores(Magnitude(head.scale), head.soft_cap, scores);
      if (unit.rows != nullptr) HideScores(unit.rows, unit.shift, scores);
      if (rows.is_fresh) LargestScores(scores, rows.max);
      rows.is_fresh = false;
      float* const sums = s.sums + strip * 2 * kTurnSums;
      const float* const before = sums + rows.turn * kTurnSums;
      rows.turn ^= 1;
      float* const after = sums + rows.turn * kTurnSums;
      if (Weights(scores, factor, rows.max, before, after, s.weights + i * kPairWords))
        Redo(scores, factor, &rows, before, after, s.weights, i);
    }
    if (rows.must_scale) ScaleOut(s, strip);
    for (int64_t column = 0; column < UnitsOf(head.value_width); ++column)
      Multiply<false>(
          n, [&](int64_t k) { return s.weights + k * kPairWords; },
          [&](int64_t k) { return visible[begin + k].values + column * kPairWords; },
          s.out + strip * s.out_floats + column * kSumFloats);
  }
}

void ForwardKeys(const ForwardHead& head, const QueryBlock& queries, const float* panels, int num_panels,
                 const TileMask* tiles, float* scratch) {
  const FlushDenormals flush;
  const TilesInUse in_use;
  const ForwardScratch s(head, scratch);
  for (int64_t strip = 0; strip * kUnit < queries.num_rows; ++strip, tiles += num_panels) {
    VisibleUnit visible[kMostUnits];
    const int n = FindVisible(head, reinterpret_cast<const uint32_t*>(panels), num_panels, tiles, visible);
    ForwardStrip(head, s, strip, visible, n);
  }
}

// ---------------------------------------------------------------------------------------------------- end

LONGSPAN_INLINE int ExponentOf(float x) {
  return static_cast<int>(__builtin_bit_cast(uint32_t, x) >> 23 & 0xff) - 127;
}

void ForwardEnd(const ForwardHead& head, const QueryBlock& queries, float* scratch) {
  const FlushDenormals flush;
  const ForwardScratch s(head, scratch);
  for (int64_t index = 0; index < queries.num_rows; ++index) {
    const int64_t strip = index / kUnit, r = index % kUnit;
    const StripRows& rows = s.rows[strip];
    const float sum = SumOf(Load(s.sums + (strip * 2 + rows.turn) * kTurnSums + r * kLanes));
    float max = rows.max[r];
    float scale = 1;
    if (head.last && sum != 0) {
      // In natural units, and M as high by whole binades as the row has outgrown it, or its distance would
      // show in lse.
      const int growth = ExponentOf(sum * 0x1p60f);
      scale = ScalarExp2(static_cast<float>(-growth)) * 0x1p60f;
      const double natural = static_cast<double>(max) * (head.soft_cap != 0 ? 1.0 : Magnitude(head.scale));
      max = static_cast<float>(natural + growth * 0.69314718055994531);
    }
    for (int64_t column = 0; column < head.value_width; column += kLanes)
      Store(s.row + column, Mul(Load(OutAt(s, strip, r, column)), Set(scale)));
    StoreForwardRow(head, queries.rows[index], max, sum * scale, s.row, 1);
  }
}

}  // namespace
}  // namespace longspan::cpu
