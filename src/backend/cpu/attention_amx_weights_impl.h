// From scores to weights in the forward kernels on tiles. See attention_amx_forward_impl.h.
#pragma once

#include "backend/cpu/attention_amx_impl.h"

namespace longspan::cpu {
namespace {

// ---------------------------------------------------------------------------------------------- scores

// Scores become soft_cap · tanh(scale · score / soft_cap).
__attribute__((noinline)) void CapScores(float scale, float soft_cap, int64_t n, float* scores) {
  for (int64_t i = 0; i < n; i += kLanes)
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

// max[row] = the largest of the row's scores in so many units; NaN if one is.
__attribute__((noinline)) void LargestScores(const float* scores, int units, float* max) {
  for (int64_t r = 0; r < kUnit; ++r) {
    Vec largest = Set(kNegativeInfinity);
    __mmask16 nan = 0;
    for (int unit = 0; unit < units; ++unit) {
      const float* row = scores + unit * kSumFloats + r * kSumRow;
      const Vec left = Load(row), right = Load(row + kLanes);
      nan |= _mm512_cmp_ps_mask(left, right, _CMP_UNORD_Q);
      largest = Max(largest, Max(left, right));
    }
    max[r] = nan != 0 ? __builtin_nanf("") : MaxOf(largest);
  }
}

// --------------------------------------------------------------------------------------------- weights

// 2^−60 · 2^y for y = factor · (score − M) and its fraction f: −60 is where weights begin. Relative error
// 3e-6, a thousandth of what rounding to bf16 adds; exact at y = 0.
constexpr float kStart = 0x1p-60f;
constexpr float kStartBinades = -60;
struct WeightPolynomial {
  Vec c4 = Set(kStart * 0.01342668384f), c3 = Set(kStart * 0.05224247277f), c2 = Set(kStart * 0.2412801981f);
  Vec c1 = Set(kStart * 0.6930448413f), c0 = Set(kStart);
};

// The upper 16 bits of the result are the bf16 nearest to x.
LONGSPAN_INLINE Words RoundUpper(Vec x) {
  return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}

// The weights of at most kUnits (1 or 2) units of scores, kRows rows a step (attention_amx_products_impl.h).
template <int kUnits, int kRows>
class WeightWork {
  static constexpr int kAtOnce = kRows < 4 ? kRows : 4;  // so many rows in registers
  static constexpr int kVectors = 2 * kAtOnce;

 public:
  static constexpr bool kFromFirstStep = true;
  struct Step {
    Vec y[kVectors], f[kVectors], p[kVectors];
  };

  // `max`: M of 32 rows. The sums with these units are written to `after`, beside those before them.
  LONGSPAN_INLINE WeightWork(int units, const float* scores, float factor, const float* max,
                             const float* before, float* after, uint32_t* weights)
      : scores_(scores),
        max_(max),
        before_(before),
        after_(after),
        weights_(weights),
        rows_(units * kUnit),
        factor_(Set(factor)),
        all_(_mm512_setzero_si512()) {}

  LONGSPAN_INLINE bool IsDone() const { return rows_ == 0; }

  template <int kSlot>
  LONGSPAN_INLINE void Slot(Step& v) {
    if constexpr (kRows > kAtOnce) {
      Stage<4 * kSlot % 8>(v, kSlot / 2 * kAtOnce);
      Stage<4 * kSlot % 8 + 1>(v, kSlot / 2 * kAtOnce);
      Stage<4 * kSlot % 8 + 2>(v, kSlot / 2 * kAtOnce);
      Stage<4 * kSlot % 8 + 3>(v, kSlot / 2 * kAtOnce);
    } else {
      Stage<2 * kSlot>(v, 0);
      Stage<2 * kSlot + 1>(v, 0);
    }
  }

  LONGSPAN_INLINE void EndStep() {
    scores_ += kRows * kSumRow;
    weights_ += kRows * kWords;
    max_ += kRows;
    before_ += kRows * kLanes;
    after_ += kRows * kLanes;
    rows_ -= kRows;
    if (kUnits == 2 && rows_ == kUnit) {  // the second unit adds to the sums with the first
      max_ -= kUnit;
      after_ -= kUnit * kLanes;
      before_ = after_;
    }
  }

  LONGSPAN_INLINE void Finish() {
    while (!IsDone()) {
      Step v;
      Slot<0>(v);
      Slot<1>(v);
      Slot<2>(v);
      Slot<3>(v);
      EndStep();
    }
  }

  // Whether a weight so far is 2 or more, infinite or NaN.
  LONGSPAN_INLINE bool IsAnyTooLarge() const {
    return _mm512_test_epi32_mask(all_, _mm512_set1_epi32(0x40004000)) != 0;
  }

 private:
  template <int kStage>
  LONGSPAN_INLINE void Stage(Step& v, int row) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      if constexpr (kStage == 0) {
        const Vec score = Load(scores_ + (row + i / 2) * kSumRow + i % 2 * kLanes);
        Keep(v.y[i] = Mul(Sub(score, Set(max_[row + i / 2])), factor_));
      }
      if constexpr (kStage == 1) Keep(v.f[i] = Fraction(v.y[i]));
      if constexpr (kStage == 2) Keep(v.p[i] = Fma(Fma(c_.c4, v.f[i], c_.c3), v.f[i], c_.c2));
      if constexpr (kStage == 3) Keep(v.p[i] = Fma(v.p[i], v.f[i], c_.c1));
      if constexpr (kStage == 4) Keep(v.p[i] = Fma(v.p[i], v.f[i], c_.c0));
      if constexpr (kStage == 5) Keep(v.p[i] = ScaleByFloor(v.p[i], v.y[i]));
    }
#pragma GCC unroll 4
    for (int r = 0; r < kAtOnce; ++r) {
      const Vec left = v.p[2 * r], right = v.p[2 * r + 1];
      if constexpr (kStage == 6) {
        const Words packed = PackUpperHalves(RoundUpper(left), RoundUpper(right));
        StoreWords(weights_ + (row + r) * kWords, packed);
        Keep(all_ = _mm512_or_si512(all_, packed));
      }
      if constexpr (kStage == 7) {
        const int64_t at = (row + r) * kLanes;
        Store(after_ + at, Add(Load(before_ + at), Add(left, right)));
      }
    }
  }

  const float *scores_, *max_, *before_;
  float* after_;
  uint32_t* weights_;
  int rows_;  // left
  const WeightPolynomial c_;
  const Vec factor_;
  Words all_;
};

// ----------------------------------------------------------------------------- rows with a new maximum

// By what the output of 32 rows must be scaled before a batch's values are added.
struct alignas(64) RowScales {
  float scale[kUnit];
  bool any;  // of them is not 1
  LONGSPAN_INLINE void Clear() {
    any = false;
    for (int64_t r = 0; r < kUnit; ++r) scale[r] = 1;
  }
};

// As WeightWork has it.
LONGSPAN_INLINE Vec Weight(Vec score, float max, float factor) {
  const WeightPolynomial c;
  const Vec y = Mul(Sub(score, Set(max)), Set(factor)), f = Fraction(y);
  const Vec p = Fma(Fma(Fma(Fma(c.c4, f, c.c3), f, c.c2), f, c.c1), f, c.c0);
  return ScaleByFloor(p, y);
}

// A row of weights times a number.
LONGSPAN_INLINE void ScaleWeights(uint32_t* weights, float scale) {
  const Words old = LoadWords(weights), upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const Vec left = _mm512_castsi512_ps(_mm512_slli_epi32(old, 16));
  const Vec right = _mm512_castsi512_ps(_mm512_and_si512(old, upper));
  StoreWords(weights, PackUpperHalves(RoundUpper(Mul(left, Set(scale))), RoundUpper(Mul(right, Set(scale)))));
}

// Rows whose weights in so many units of a batch, after `done` others of it, are too large: a new maximum,
// all that is there already scaled to it, and these weights again. `scores` are those of the units, `weights`
// the batch's.
__attribute__((noinline)) void Redo(int units, const float* scores, float factor, float* max,
                                    const float* before, float* after, uint32_t* weights, int done,
                                    RowScales* scales) {
  float largest[kUnit];
  LargestScores(scores, units, largest);
  for (int64_t r = 0; r < kUnit; ++r) {
    const bool saw_nothing = max[r] == kNegativeInfinity, sees_nothing = largest[r] == kNegativeInfinity;
    if (!saw_nothing && !((largest[r] - max[r]) * factor + kStartBinades >= 1)) continue;
    Vec sum = Load(before + r * kLanes);
    if (!saw_nothing) {
      const float scale = ScalarExp2((max[r] - largest[r]) * factor);
      scales->any = true;
      scales->scale[r] *= scale;
      sum = Mul(sum, Set(scale));
      for (int unit = 0; unit < done; ++unit) ScaleWeights(weights + unit * kPairWords + r * kWords, scale);
    }
    max[r] = largest[r];
    for (int unit = 0; unit < units; ++unit) {
      uint32_t* const packed = weights + (done + unit) * kPairWords + r * kWords;
      if (sees_nothing) {
        ClearWords(kWords, packed);
        continue;
      }
      const float* row = scores + unit * kSumFloats + r * kSumRow;
      const Vec left = Weight(Load(row), max[r], factor), right = Weight(Load(row + kLanes), max[r], factor);
      StoreWords(packed, PackUpperHalves(RoundUpper(left), RoundUpper(right)));
      sum = Add(sum, Add(left, right));
    }
    Store(after + r * kLanes, sum);
  }
}

}  // namespace
}  // namespace longspan::cpu
