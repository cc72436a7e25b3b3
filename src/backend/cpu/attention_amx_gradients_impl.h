// From scores to weights and their gradients in the backward kernels on tiles. See
// attention_amx_backward_impl.h.
#pragma once

#include "backend/cpu/attention_amx_products_impl.h"

namespace longspan::cpu {
namespace {

// Scores become soft_cap · tanh(scale · score / soft_cap); dp is multiplied by the derivative of that.
__attribute__((noinline)) void CapUnit(float scale, float soft_cap, float* scores, float* dp) {
  for (int64_t i = 0; i < kSumFloats; i += kLanes) {
    const Vec t = Tanh(Mul(Load(scores + i), Set(scale / soft_cap)));
    Store(scores + i, Mul(t, Set(soft_cap)));
    Store(dp + i, Mul(Load(dp + i), Sub(Set(1), Mul(t, t))));
  }
}

// Scores become logarithms of weights: factor · score + bias or, for the queries whose bits are in `wide`,
// scale · score + bias in binades, where the product is rounded as the forward pass rounds that of its
// maximum.
__attribute__((noinline)) void CentreUnit(float factor, float scale, const float* bias, uint32_t wide,
                                          float* scores) {
  for (int64_t i = 0; i < kSumFloats; i += kLanes) {
    const Vec score = Load(scores + i), b = Load(bias + i % kSumRow);
    const Vec far = Mul(Add(Mul(score, Set(scale)), b), Set(kLog2E));
    Store(scores + i, Select(wide >> i % kSumRow, far, Fma(score, Set(factor), b)));
  }
}
alignas(64) constexpr float kNoBias[kUnit] = {};

// Numbers of pairs whose query doesn't see the key become `hidden`. `rows` are the queries' words.
__attribute__((noinline)) void HideUnit(const uint64_t* rows, int shift, float hidden, float* scores) {
  alignas(64) uint32_t bits[kUnit];
  for (int64_t r = 0; r < kUnit; ++r) bits[r] = static_cast<uint32_t>(rows[r] >> shift);
  const Words left = LoadWords(bits), right = LoadWords(bits + kLanes);
  for (int64_t key = 0; key < kUnit; ++key) {
    const Words bit = _mm512_set1_epi32(static_cast<int>(1u << key));
    float* const row = scores + key * kSumRow;
    Store(row, Select(_mm512_test_epi32_mask(left, bit), Load(row), Set(hidden)));
    Store(row + kLanes, Select(_mm512_test_epi32_mask(right, bit), Load(row + kLanes), Set(hidden)));
  }
}

// ------------------------------------------------------------------------------------------------ weights

// Pᵀ and dSᵀ of a unit as left pairs, and dSᵀ as a right one. In 64 stages: each key of the upper half
// together with the one 16 below takes four, on four vectors.
class GradientWork {
 public:
  static constexpr int kStages = 64;

  // The next query unit's dS as a right pair is next_right words on.
  LONGSPAN_INLINE GradientWork(const float* scores, const float* dp, float factor, const float* bias,
                               uint32_t* p, uint32_t* ds, uint32_t* ds_right, int64_t next_right)
      : scores_(scores),
        dp_(dp),
        bias_(bias),
        p_(p),
        ds_(ds),
        ds_right_(ds_right),
        next_right_(next_right),
        factor_(Set(factor)) {}

  // Stages [kBegin, kEnd).
  template <int kBegin, int kEnd>
  LONGSPAN_INLINE void Run() {
    if constexpr (kBegin < kEnd) {
      Stage<kBegin % 4>(kBegin / 4);
      Run<kBegin + 1, kEnd>();
    }
  }

 private:
  // Vector i: queries 16 · (i mod 2) … of the key, or of that 16 below.
  template <int kStage>
  LONGSPAN_INLINE void Stage(int key) {
    if constexpr (kStage == 0) {
      // Where those of the next unit will be stored, as a rule.
      for (int64_t row = key * kWords; row < kPairWords; row += kTileWords) {
        __builtin_prefetch(p_ + kPairWords + row, 1);
        __builtin_prefetch(ds_ + kPairWords + row, 1);
        __builtin_prefetch(ds_right_ + next_right_ + row, 1);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int64_t at = (key + i / 2 * kTileRows) * kSumRow + i % 2 * kLanes;
      if constexpr (kStage == 0) {
        Keep(y_[i] = Fma(Load(scores_ + at), factor_, Load(bias_ + i % 2 * kLanes)));
        Keep(f_[i] = Fraction(y_[i]));
      }
      if constexpr (kStage == 1) Keep(w_[i] = Fma(Fma(Fma(c3_, f_[i], c2_), f_[i], c1_), f_[i], c0_));
      if constexpr (kStage == 2) {
        Keep(w_[i] = ScaleByFloor(w_[i], y_[i]));
        Keep(f_[i] = Mul(w_[i], Load(dp_ + at)));
      }
    }
    if constexpr (kStage == 3) {
      const auto cut = [](Vec low, Vec high) __attribute__((always_inline)) {
        return PackUpperHalves(_mm512_castps_si512(low), _mm512_castps_si512(high));
      };
      const int64_t upper = key * kWords, lower = kTileWords + upper;
      StoreWords(p_ + upper, cut(w_[0], w_[1]));
      StoreWords(p_ + lower, cut(w_[2], w_[3]));
      StoreWords(ds_ + upper, cut(f_[0], f_[1]));
      StoreWords(ds_ + lower, cut(f_[2], f_[3]));
      StoreWords(ds_right_ + upper, cut(f_[0], f_[2]));
      StoreWords(ds_right_ + lower, cut(f_[1], f_[3]));
    }
  }

  const float *scores_, *dp_, *bias_;
  uint32_t *p_, *ds_, *ds_right_;
  const int64_t next_right_;
  const Vec factor_;
  // 2^f times what cutting to bf16 takes away on average: 2^−8 of a number's power of two, relative to
  // numbers whose logarithms are spread evenly. Relative error 8e-5.
  static constexpr float kCut = 1.0027076f;
  const Vec c3_ = Set(kCut * 0.07802452147f), c2_ = Set(kCut * 0.2260671556f);
  const Vec c1_ = Set(kCut * 0.6958335638f), c0_ = Set(kCut * 0.9999251962f);
  Vec y_[4], f_[4], w_[4];
};

// ----------------------------------------------------------------------------------------------- products

// What the scores of a unit and their gradients are made of.
struct UnitOperands {
  const uint32_t *k, *q, *v, *dout;
  const float* delta;  // where dp starts, by query
  float *scores, *dp;
};

// Step kStep of kWidth + kValue, Sᵀ = K·Qᵀ and then dPᵀ = V·dOᵀ, and those after it; beside them the work on
// another unit, whose dp is stored by the first step and so can be used only after it. (All steps unrolled:
// nothing but a fixed place lets 64 stages spread evenly.)
template <int kWidth, int kValue, bool kIsBusy, int kStep = 0>
LONGSPAN_INLINE void UnitSteps(const UnitOperands& x, const UnitOperands& next, float* before,
                               GradientWork& work) {
  if constexpr (kStep < kWidth + kValue) {
    constexpr int kNext = kStep + 1;
    const uint32_t *left = next.k, *right = next.q;
    if constexpr (kNext < kWidth) {
      left = x.k + kNext * kPairWords;
      right = x.q + kNext * kPairWords;
    } else if constexpr (kNext < kWidth + kValue) {
      left = x.v + (kNext - kWidth) * kPairWords;
      right = x.dout + (kNext - kWidth) * kPairWords;
    }
    const auto begin = [&](auto tile) __attribute__((always_inline)) {
      constexpr int kTile = decltype(tile)::value;
      if constexpr (kStep == 0) ExchangeSums<First::kFromZero, kTile>(before, nullptr);
      if constexpr (kStep == kWidth) {
        TileStore<kTile>(SumTile<kTile>(x.scores), kSumRowBytes);
        TileLoad<kTile>(x.delta + kTile % 2 * kLanes, 0);
      }
    };
    const auto slot = [&](auto index) __attribute__((always_inline)) {
      constexpr int kSlots = 4 * (kWidth + kValue) - 4, kSlot = 4 * kStep + decltype(index)::value - 4;
      if constexpr (kIsBusy && kSlot >= 0)
        work.Run<kSlot * GradientWork::kStages / kSlots, (kSlot + 1) * GradientWork::kStages / kSlots>();
    };
    begin(Int<0>());
    TileDot<0, 4, 6>();
    slot(Int<0>());
    begin(Int<1>());
    TileDot<1, 4, 7>();
    TileLoad<4>(left, kTileRowBytes);
    slot(Int<1>());
    begin(Int<2>());
    TileDot<2, 5, 6>();
    TileStream<6>(right, kTileRowBytes);
    slot(Int<2>());
    begin(Int<3>());
    TileDot<3, 5, 7>();
    TileStream<7>(right + kTileWords, kTileRowBytes);
    TileLoad<5>(left + kTileWords, kTileRowBytes);
    slot(Int<3>());
    UnitSteps<kWidth, kValue, kIsBusy, kNext>(x, next, before, work);
  }
}

LONGSPAN_INLINE void AddSteps(int64_t n, const uint32_t* left, const uint32_t* right) {
  for (; n > 0; --n, left += kPairWords, right += kPairWords) {
    LoadOperands(left, right);
    TileDot<0, 4, 6>();
    TileDot<1, 4, 7>();
    TileDot<2, 5, 6>();
    TileDot<3, 5, 7>();
  }
}

// The two products of a unit of any width, one after the other. Leaves dp in the tiles, as UnitSteps does.
LONGSPAN_INLINE void MultiplyUnit(int64_t width_units, int64_t value_units, const UnitOperands& x) {
  TileZero<0>();
  TileZero<1>();
  TileZero<2>();
  TileZero<3>();
  AddSteps(width_units, x.k, x.q);
  StoreSums(x.scores);
  TileLoad<0>(x.delta, 0);
  TileLoad<1>(x.delta + kLanes, 0);
  TileLoad<2>(x.delta, 0);
  TileLoad<3>(x.delta + kLanes, 0);
  AddSteps(value_units, x.v, x.dout);
}

}  // namespace
}  // namespace longspan::cpu
