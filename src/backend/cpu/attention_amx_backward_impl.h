// The backward kernels on tiles. See attention_amx_impl.h.
//
// A key block keeps its packed keys, values and their gradients (f32) in scratch memory while query blocks
// pass. They meet in square blocks of kSide units. For each unit of 32 keys × 32 queries that is not empty:
// Sᵀ = K·Qᵀ and dPᵀ = V·dOᵀ − Δ, whose sums start at −Δ; then Pᵀ = 2^(factor·Sᵀ − lse) and dSᵀ = Pᵀ ∘ dPᵀ,
// under a soft cap times its derivative. Both come out as left operands for dV += Pᵀ·dO and dK += dSᵀ·Q; dSᵀ
// is stored once more as a right one for dQᵀ += Kᵀ·dSᵀ, which is transposed when it is added to dq. The scale
// of dK and dQ is applied to the f32 sums.
//
// Weights are cut to bf16, not rounded: what that takes from them on average is in the coefficients of 2^x.
#pragma once

#include "backend/cpu/attention_amx_gradients_impl.h"

namespace longspan::cpu {
namespace {

constexpr int kSide = 8;
constexpr BlockSize kBackwardBlock = {kSide * kUnit, 2 * kSide / kPanelUnits, kUnit};
constexpr int kKeyUnits = kBackwardBlock.panels * kPanelUnits;
constexpr int64_t kWeightWords = kSide * kSide * kPairWords;

struct BackwardScratch {
  int64_t width_units, value_units;
  // Left: [key unit][unit of columns][pair].
  uint32_t *k, *v;
  uint32_t* k_transposed;  // [square][unit of columns][key unit][pair], left: of Kᵀ
  float *dk, *dv;          // [key unit][unit of columns][32][32]; dk lacks the scale
  // Right transposed: [query unit][unit of columns][pair].
  uint32_t *q, *dout;
  uint32_t *q_rows, *dout_rows;  // [unit of columns][query unit][pair], right
  float* dq;                     // [query unit][unit of columns][32 columns][32 queries], without the scale
  // Of a square, left: [key unit][query unit][pair]; ds_right: [query unit][key unit][pair], right.
  uint32_t *p, *ds, *ds_right;
  float* scores;        // [2][32 keys][32 queries]
  float *dp, *unused;   // [32 keys][32 queries]; sums of no product
  float *bias, *delta;  // [query], −lse in binades (natural units in a wide row, PackQueries) and −Δ

  BackwardScratch(const BackwardHead& head, float* scratch)
      : width_units(UnitsOf(head.width)), value_units(UnitsOf(head.value_width)) {
    auto* words = reinterpret_cast<uint32_t*>(scratch);
    const auto take = [&](int64_t n) {
      uint32_t* const taken = words;
      words += n;
      return taken;
    };
    k = take(kKeyUnits * width_units * kPairWords);
    v = take(kKeyUnits * value_units * kPairWords);
    k_transposed = take(kKeyUnits * width_units * kPairWords);
    dk = reinterpret_cast<float*>(take(kKeyUnits * width_units * kSumFloats));
    dv = reinterpret_cast<float*>(take(kKeyUnits * value_units * kSumFloats));
    q = take(kSide * width_units * kPairWords);
    dout = take(kSide * value_units * kPairWords);
    q_rows = take(kSide * width_units * kPairWords);
    dout_rows = take(kSide * value_units * kPairWords);
    dq = reinterpret_cast<float*>(take(kSide * width_units * kSumFloats));
    p = take(kWeightWords);
    ds = take(kWeightWords);
    ds_right = take(kWeightWords);
    scores = reinterpret_cast<float*>(take(2 * kSumFloats));
    dp = reinterpret_cast<float*>(take(kSumFloats));
    unused = reinterpret_cast<float*>(take(kSumFloats));
    bias = reinterpret_cast<float*>(take(kBackwardBlock.rows));
    delta = reinterpret_cast<float*>(take(kBackwardBlock.rows));
  }
};

int64_t BackwardScratchFloats(int64_t width, int64_t value_width) {
  const int64_t width_units = UnitsOf(width), value_units = UnitsOf(value_width);
  return kKeyUnits *
             ((2 * width_units + value_units) * kPairWords + (width_units + value_units) * kSumFloats) +
         kSide * (2 * (width_units + value_units) * kPairWords + width_units * kSumFloats) +
         3 * kWeightWords + 4 * kSumFloats + 2 * kBackwardBlock.rows;
}

// ------------------------------------------------------------------------------------------------ packing

void BackwardBegin(const BackwardHead& head, const KeyPanel* keys, int num_panels, float* scratch) {
  const FlushDenormals flush;
  const BackwardScratch s(head, scratch);
  for (int unit = 0; unit < num_panels * kPanelUnits; ++unit) {
    const KeyPanel& panel = keys[unit / kPanelUnits];
    UnitRows k, v;
    FindKeys(head.k, panel, unit % kPanelUnits, head.width, &k);
    FindKeys(head.v, panel, unit % kPanelUnits, head.value_width, &v);
    uint32_t* const k_left = s.k + unit * s.width_units * kPairWords;
    PackLeft(k, head.width, 0, k_left);
    uint32_t dropped = DropNotFinite(&k) | DropNotFinite(&v);
    for (; dropped != 0; dropped &= dropped - 1) SpoilLeft(k_left, LowestBit(dropped));
    PackLeft(v, head.value_width, 0, s.v + unit * s.value_units * kPairWords);
    uint32_t* const transposed =
        s.k_transposed + unit / kSide * kSide * s.width_units * kPairWords + unit % kSide * kPairWords;
    PackRight(k, head.key_mean, head.width, kSide * kPairWords, transposed);
    for (int64_t column = 0; column < s.width_units; ++column) {
      uint32_t* const pair = transposed + column * kSide * kPairWords;
      TransposeTile(pair);
      TransposeTile(pair + kTileWords);
    }
  }
  ClearFloats(num_panels * kPanelUnits * s.width_units * kSumFloats, s.dk);
  ClearFloats(num_panels * kPanelUnits * s.value_units * kSumFloats, s.dv);
}

// Units [begin, end) of the block. Rows that don't exist or see nothing are zeros and have weights of
// 2^(0 − ∞) = 0. `wide` becomes, by unit, the bits of rows with scores so large that factor · score and lse
// in binades, rounded one apart from the other, would miss each other by more than bf16 shows.
void PackQueries(const BackwardHead& head, const QueryBlock& queries, int64_t begin, int64_t end,
                 const BackwardScratch& s, uint32_t (&wide)[kSide]) {
  constexpr float kWide = 0x1p12f;
  for (int64_t unit = begin; unit < end; ++unit) {
    UnitRows q, dout;
    uint32_t spoilt = 0;
    wide[unit] = 0;
    for (int64_t r = 0; r < kUnit; ++r) {
      const int64_t index = unit * kUnit + r;
      const int64_t row = index < queries.num_rows ? queries.rows[index] : -1;
      const int64_t later = queries.rows[Least(index + kPrefetchRows, queries.num_rows - 1)];
      PrefetchRow(head.q, later, head.width);
      PrefetchRow(head.dout, later, head.value_width);
      const float lse = row < 0 ? kNegativeInfinity : head.lse.data[row * head.lse.stride];
      const bool is_empty = lse == kNegativeInfinity;
      const bool is_wide = !is_empty && Magnitude(lse) > kWide;
      float bias = is_wide ? -lse : is_empty ? kNegativeInfinity : -lse * kLog2E;
      float delta = is_empty ? 0 : -head.delta.data[row * head.delta.stride];
      q.data[r] = RowOf(head.q, is_empty ? 0 : row);
      dout.data[r] = RowOf(head.dout, is_empty ? 0 : row);
      // Weights of 0 meet these rows: the keys that one which is not finite sees shall know it, others not.
      // (An lse of ∞ is that of a sink of ∞, which leaves the keys weights of 0.)
      const bool is_good = !is_empty && IsFinite(q.data[r], head.width) &&
                           IsFinite(dout.data[r], head.value_width) && delta - delta == 0 && lse == lse;
      if (!is_empty && !is_good) {
        spoilt |= 1u << r;
        bias = delta = 0;
      }
      q.widths[r] = is_good ? head.width : 0;
      dout.widths[r] = is_good ? head.value_width : 0;
      wide[unit] |= static_cast<uint32_t>(is_wide && is_good) << r;
      s.bias[index] = bias;
      s.delta[index] = delta;
    }
    uint32_t* const q_right = s.q + unit * s.width_units * kPairWords;
    PackRightTransposed(q, head.width, q_right);
    for (; spoilt != 0; spoilt &= spoilt - 1) SpoilRightTransposed(q_right, LowestBit(spoilt));
    PackRightTransposed(dout, head.value_width, s.dout + unit * s.value_units * kPairWords);
    PackRight(q, nullptr, head.width, kSide * kPairWords, s.q_rows + unit * kPairWords);
    PackRight(dout, nullptr, head.value_width, kSide * kPairWords, s.dout_rows + unit * kPairWords);
  }
}

// ------------------------------------------------------------------------------------------------- squares

// Which units of a square are seen: by key unit the bits of query units, and the reverse.
struct SquareView {
  uint32_t by_key[kSide] = {}, by_query[kSide] = {};

  SquareView(const TileMask* tiles, int num_panels, int64_t first_key_unit, int64_t num_queries) {
    for (int k = 0; k < kSide && first_key_unit + k < num_panels * kPanelUnits; ++k) {
      const int64_t panel = (first_key_unit + k) / kPanelUnits,
                    shift = (first_key_unit + k) % kPanelUnits * kUnit;
      for (int q = 0; q < num_queries; ++q) {
        if ((tiles[q * num_panels + panel].any >> shift & 0xffffffffu) == 0) continue;
        by_key[k] |= 1u << q;
        by_query[q] |= 1u << k;
      }
    }
  }

  bool Sees(int k, int q) const { return (by_key[k] >> q & 1) != 0; }
  bool IsEmpty() const {
    uint32_t seen = 0;
    for (int k = 0; k < kSide; ++k) seen |= by_key[k];
    return seen == 0;
  }
};

// From the first to the last unit that is seen.
struct UnitRange {
  int begin = 0, end = 0;
  LONGSPAN_INLINE explicit UnitRange(uint32_t seen) {
    if (seen != 0) {
      begin = LowestBit(seen);
      end = EndBit(seen);
    }
  }
  LONGSPAN_INLINE bool Contains(int i) const { return begin <= i && i < end; }
};

// Zeros where nobody sees anything but a product goes over it.
void ClearUnseen(const BackwardScratch& s, const SquareView& view) {
  for (int k = 0; k < kSide; ++k) {
    for (int q = 0; q < kSide; ++q) {
      if (view.Sees(k, q)) continue;
      if (UnitRange(view.by_key[k]).Contains(q)) {
        ClearWords(kPairWords, s.p + (k * kSide + q) * kPairWords);
        ClearWords(kPairWords, s.ds + (k * kSide + q) * kPairWords);
      }
      if (UnitRange(view.by_query[q]).Contains(k))
        ClearWords(kPairWords, s.ds_right + (q * kSide + k) * kPairWords);
    }
  }
}

// P and dS of all units of a square: the products of one beside the vector work of the one before. `wide`: as
// PackQueries has it. kWidth and kValue are the units of the two widths, or 0 for any.
template <int kWidth, int kValue>
void WeightSquare(const BackwardHead& head, const BackwardScratch& s, const SquareView& view,
                  int64_t first_key_unit, const uint32_t (&wide)[kSide], const TileMask* tiles,
                  int num_panels) {
  const float factor = FactorOf(head.scale, head.soft_cap);
  struct Unit {
    int k, q;
  } units[kSide * kSide];
  int num = 0;
  for (int k = 0; k < kSide; ++k)
    for (int q = 0; q < kSide; ++q)
      if (view.Sees(k, q)) units[num++] = {k, q};
  // A unit's numbers times this are logarithms of weights, less lse in all but those with wide rows.
  const auto factor_of = [&](int u) { return wide[units[u].q] != 0 ? 1 : factor; };

  const auto operands_of = [&](int u) {
    const int64_t key_unit = first_key_unit + units[u].k, q = units[u].q;
    return UnitOperands{s.k + key_unit * s.width_units * kPairWords,
                        s.q + q * s.width_units * kPairWords,
                        s.v + key_unit * s.value_units * kPairWords,
                        s.dout + q * s.value_units * kPairWords,
                        s.delta + q * kUnit,
                        s.scores + u % 2 * kSumFloats,
                        s.dp};
  };
  // Once the unit's products are done, but for dp, which is in the tiles yet.
  const auto prepare = [&](int u, float* before) {
    float* const scores = s.scores + u % 2 * kSumFloats;
    if (head.soft_cap != 0) {
      StoreSums(s.dp);
      before = s.unused;
      CapUnit(head.scale, head.soft_cap, scores, s.dp);
    }
    if (wide[units[u].q] != 0)
      CentreUnit(factor, head.soft_cap != 0 ? 1 : head.scale, s.bias + units[u].q * kUnit, wide[units[u].q],
                 scores);
    const int64_t key_unit = first_key_unit + units[u].k;
    const TileMask& tile = tiles[units[u].q * num_panels + key_unit / kPanelUnits];
    if (tile.rows != nullptr) {
      const int shift = static_cast<int>(key_unit % kPanelUnits) * kUnit;
      HideUnit(tile.rows, shift, factor_of(u) < 0 ? -kNegativeInfinity : kNegativeInfinity, scores);
      // A weight of 0 makes no zero of a derivative that is not finite.
      if (head.soft_cap != 0) HideUnit(tile.rows, shift, 0, s.dp);
    }
    return before;
  };
  const auto work_of = [&](int u) __attribute__((always_inline)) {
    const auto [k, q] = units[u];
    return GradientWork(s.scores + u % 2 * kSumFloats, s.dp, factor_of(u),
                        wide[q] != 0 ? kNoBias : s.bias + q * kUnit, s.p + (k * kSide + q) * kPairWords,
                        s.ds + (k * kSide + q) * kPairWords, s.ds_right + (q * kSide + k) * kPairWords,
                        kSide * kPairWords);
  };
  for (int u = 0; u < num; ++u) {
    const UnitOperands x = operands_of(u);
    GradientWork work = work_of(u > 0 ? u - 1 : 0);
    float* before = u > 0 ? prepare(u - 1, s.dp) : s.unused;
    if constexpr (kWidth > 0) {
      const UnitOperands next = operands_of(u + 1 < num ? u + 1 : u);
      if (u == 0) {
        LoadOperands(x.k, x.q);
        UnitSteps<kWidth, kValue, false>(x, next, before, work);
      } else {
        UnitSteps<kWidth, kValue, true>(x, next, before, work);
      }
    } else {
      StoreSums(before);
      if (u > 0) work.Run<0, GradientWork::kStages>();
      MultiplyUnit(s.width_units, s.value_units, x);
    }
  }
  StoreSums(prepare(num - 1, s.dp));
  work_of(num - 1).template Run<0, GradientWork::kStages>();
}

// dV += Pᵀ·dO, dK += dSᵀ·Q, dQᵀ += Kᵀ·dSᵀ. `fresh`: the queries whose dQᵀ is still to be started.
void MultiplySquare(const BackwardScratch& s, const SquareView& view, int64_t first_key_unit,
                    uint32_t fresh) {
  ProductStream stream(s.unused);
  for (int k = 0; k < kSide; ++k) {
    const UnitRange queries(view.by_key[k]);
    const int n = queries.end - queries.begin;
    if (n == 0) continue;
    const int64_t row = (k * kSide + queries.begin) * kPairWords, key_unit = first_key_unit + k;
    for (int64_t column = 0; column < s.value_units; ++column)
      stream.Add({s.p + row, s.dout_rows + (column * kSide + queries.begin) * kPairWords, kPairWords,
                  s.dv + (key_unit * s.value_units + column) * kSumFloats, n, true});
    for (int64_t column = 0; column < s.width_units; ++column)
      stream.Add({s.ds + row, s.q_rows + (column * kSide + queries.begin) * kPairWords, kPairWords,
                  s.dk + (key_unit * s.width_units + column) * kSumFloats, n, true});
  }
  const uint32_t* const transposed = s.k_transposed + first_key_unit * s.width_units * kPairWords;
  for (int64_t column = 0; column < s.width_units; ++column) {
    for (int q = 0; q < kSide; ++q) {
      const UnitRange keys(view.by_query[q]);
      if (keys.begin == keys.end) continue;
      stream.Add({transposed + (column * kSide + keys.begin) * kPairWords,
                  s.ds_right + (q * kSide + keys.begin) * kPairWords, kPairWords,
                  s.dq + (q * s.width_units + column) * kSumFloats, keys.end - keys.begin,
                  (fresh >> q & 1) == 0});
    }
  }
  stream.End();
}

void BackwardQueries(const BackwardHead& head, const QueryBlock& queries, int num_panels,
                     const TileMask* tiles, float* scratch) {
  const FlushDenormals flush;
  const TilesInUse in_use;
  const BackwardScratch s(head, scratch);
  const int64_t num_units = UnitsOf(queries.num_rows);
  uint32_t seen = 0;
  for (int64_t tile = 0; tile < num_units * num_panels; ++tile)
    seen |= static_cast<uint32_t>(tiles[tile].any != 0) << (tile / num_panels);
  const UnitRange rows(seen);
  uint32_t wide[kSide];
  PackQueries(head, queries, rows.begin, rows.end, s, wide);
  const auto is_width = [&](int64_t units) { return s.width_units == units && s.value_units == units; };
  const auto weight_square = is_width(2)   ? WeightSquare<2, 2>
                             : is_width(4) ? WeightSquare<4, 4>
                             : is_width(8) ? WeightSquare<8, 8>
                                           : WeightSquare<0, 0>;
  uint32_t fresh = ~0u;
  for (int64_t key_unit = 0; key_unit < num_panels * kPanelUnits; key_unit += kSide) {
    const SquareView view(tiles, num_panels, key_unit, num_units);
    if (view.IsEmpty()) continue;
    ClearUnseen(s, view);
    weight_square(head, s, view, key_unit, wide, tiles, num_panels);
    MultiplySquare(s, view, key_unit, fresh);
    for (int q = 0; q < kSide; ++q)
      if (view.by_query[q] != 0) fresh &= ~(1u << q);
  }
}

// ------------------------------------------------------------------------------------------------ results

void BackwardDq(const BackwardHead& head, const QueryBlock& queries, int num_panels, const TileMask* tiles,
                float* scratch) {
  const FlushDenormals flush;
  const BackwardScratch s(head, scratch);
  const Vec scale = Set(head.scale);
  for (int64_t first = 0; first < queries.num_rows; first += kTileRows) {
    const int64_t unit = first / kUnit, rows = Least(kTileRows, queries.num_rows - first);
    uint64_t any = 0;
    for (int panel = 0; panel < num_panels; ++panel) any |= tiles[unit * num_panels + panel].any;
    if (any == 0) continue;
    for (int64_t column = 0; column < head.width; column += kLanes) {
      const float* from = s.dq + (unit * s.width_units + column / kUnit) * kSumFloats +
                          column % kUnit * kSumRow + first % kUnit;
      Words block[kTileRows];
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) block[i] = _mm512_castps_si512(Load(from + i * kSumRow));
      TransposeWords(block);
      for (int64_t r = 0; r < rows; ++r)
        AddTo(head.dq.data + queries.rows[first + r] * head.dq.stride + column,
              Mul(_mm512_castsi512_ps(block[r]), scale), head.width - column);
    }
  }
}

// The keys' rows of `to` += factor · those of `gradients`.
void AddGradients(const float* gradients, int64_t units, const KeyPanel& keys, int64_t width, float factor,
                  const FloatRows& to) {
  for (int64_t j = 0; j < keys.count; ++j) {
    const float* row = gradients + j / kUnit * units * kSumFloats + j % kUnit * kSumRow;
    for (int64_t column = 0; column < width; column += kLanes)
      AddTo(to.data + (keys.row + j) * to.stride + column,
            Mul(Load(row + column / kUnit * kSumFloats + column % kUnit), Set(factor)), width - column);
  }
}

void BackwardEnd(const BackwardHead& head, const KeyPanel* keys, int num_panels, float* scratch) {
  const FlushDenormals flush;
  const BackwardScratch s(head, scratch);
  for (int p = 0; p < num_panels; ++p) {
    const int64_t dk_at = p * kPanelUnits * s.width_units * kSumFloats;
    const int64_t dv_at = p * kPanelUnits * s.value_units * kSumFloats;
    AddGradients(s.dk + dk_at, s.width_units, keys[p], head.width, head.scale, head.dk);
    AddGradients(s.dv + dv_at, s.value_units, keys[p], head.value_width, 1, head.dv);
  }
}

}  // namespace
}  // namespace longspan::cpu
