// The backward kernels on pairs of bf16. See attention_pairs_impl.h.
//
// A key block keeps its packed keys, values and their gradients (f32) in scratch memory while query blocks
// pass. For each tile S = q·k and dO·Vᵀ go through a small buffer, for what follows takes two rows at a time:
// P = e^(scale·S − lse) and dS = P ∘ (dO·Vᵀ − Δ), under a soft cap times its derivative, are rounded to bf16,
// both as row pairs, dS also as rows. Products of a whole query block follow: dV += Pᵀ·dO, dK += dSᵀ·Q, dQ +=
// dS·K. The scale of dK and dQ is applied to the f32 sums.
#pragma once

#include "backend/cpu/attention_pairs_impl.h"

namespace longspan::cpu {
namespace {

// Many keys and few rows: whatever belongs to a query block is fetched and packed again for each key block.
constexpr BlockSize kBackwardBlock = {192, 9, kStripRows};
constexpr int64_t kKeyBlock = kBackwardBlock.panels * kPanelKeys;
static_assert(kKeyBlock % kStripRows == 0);
constexpr int64_t kStripPairs = kStripRows / 2;
constexpr int64_t kQueryPairs = kBackwardBlock.rows / 2;
// Distances of rows in words: 16 more than their columns, so that rows begin in different cache sets.
constexpr int64_t kPairRow = kKeyBlock + 16;
constexpr int64_t kGradientRow = kKeyBlock / 2 + 16;

struct BackwardScratch {
  uint32_t *k_width_pairs, *v_width_pairs;  // [panel][words][64]
  uint32_t* k_pairs;                        // row pairs: panels of kKeyBlock / 2
  float *dk, *dv;                           // panels of kKeyBlock rows; dk lacks the scale
  uint32_t *q, *dout;                       // row panels of a strip
  uint32_t *q_pairs, *dout_pairs;           // row pairs: panels of kQueryPairs
  uint32_t *p_pairs, *ds_pairs;             // [kQueryPairs][kPairRow], pairs of query rows
  uint32_t* ds;                             // [kBackwardBlock.rows][kGradientRow], pairs of keys
  float *lse, *delta;                       // [kBackwardBlock.rows]

  BackwardScratch(const BackwardHead& head, float* scratch)
      : k_width_pairs(reinterpret_cast<uint32_t*>(scratch)),
        v_width_pairs(k_width_pairs + kKeyBlock * RowWords(head.width)),
        k_pairs(v_width_pairs + kKeyBlock * RowWords(head.value_width)),
        dk(reinterpret_cast<float*>(k_pairs + kKeyBlock / 2 * PanelWidth(head.width))),
        dv(dk + kKeyBlock * PanelWidth(head.width)),
        q(reinterpret_cast<uint32_t*>(dv + kKeyBlock * PanelWidth(head.value_width))),
        dout(q + kStripRows * PanelWidth(PairsOf(head.width))),
        q_pairs(dout + kStripRows * PanelWidth(PairsOf(head.value_width))),
        dout_pairs(q_pairs + kQueryPairs * PanelWidth(head.width)),
        p_pairs(dout_pairs + kQueryPairs * PanelWidth(head.value_width)),
        ds_pairs(p_pairs + kQueryPairs * kPairRow),
        ds(ds_pairs + kQueryPairs * kPairRow),
        lse(reinterpret_cast<float*>(ds + kBackwardBlock.rows * kGradientRow)),
        delta(lse + kBackwardBlock.rows) {}
};

int64_t BackwardScratchFloats(int64_t width, int64_t value_width) {
  const int64_t words = RowWords(width) + RowWords(value_width);
  const int64_t panel_words = PanelWidth(PairsOf(width)) + PanelWidth(PairsOf(value_width));
  const int64_t columns = PanelWidth(width) + PanelWidth(value_width);
  return kKeyBlock * (words + columns) + kKeyBlock / 2 * PanelWidth(width) + kStripRows * panel_words +
         kBackwardBlock.rows * (kGradientRow + 2) + kQueryPairs * (columns + 2 * kPairRow);
}

void BackwardBegin(const BackwardHead& head, const KeyPanel* keys, int num_panels, float* scratch) {
  const BackwardScratch s(head, scratch);
  for (int64_t p = 0; p < num_panels; ++p) {
    PackWidthPairs(head.k, keys[p], head.width, s.k_width_pairs + p * kPanelKeys * RowWords(head.width));
    PackWidthPairs(head.v, keys[p], head.value_width,
                   s.v_width_pairs + p * kPanelKeys * RowWords(head.value_width));
    PackKeyPairs(head.k, keys[p], head.key_mean, head.width, s.k_pairs + p * kPanelKeys / 2 * kColumns,
                 kKeyBlock / 2);
  }
  __builtin_memset(s.dk, 0, sizeof(float) * static_cast<size_t>(kKeyBlock * PanelWidth(head.width)));
  __builtin_memset(s.dv, 0, sizeof(float) * static_cast<size_t>(kKeyBlock * PanelWidth(head.value_width)));
}

// The strip from row `begin` of the block on, zeros past the block's end.
LONGSPAN_INLINE void PackStrip(const BackwardHead& head, const QueryBlock& queries, int64_t begin,
                               const BackwardScratch& s) {
  for (int64_t r = begin; r < begin + kStripRows; r += 2) {
    const uint16_t *q[2], *dout[2];
    int64_t widths[2], value_widths[2];
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t row = r + i < queries.num_rows ? queries.rows[r + i] : -1;
      const int64_t later = queries.rows[Least(r + i + kPrefetchRows, queries.num_rows - 1)];
      PrefetchRow(head.q, later, head.width);
      PrefetchRow(head.dout, later, head.value_width);
      const float lse = row < 0 ? kNegativeInfinity : head.lse.data[row * head.lse.stride];
      // No such row, or one that sees nothing: all its weights are e^(0 − ∞) = 0.
      const bool is_empty = lse == kNegativeInfinity;
      q[i] = RowOf(head.q, is_empty ? 0 : row);
      dout[i] = RowOf(head.dout, is_empty ? 0 : row);
      // Weights of 0 meet these rows (PackKeyPairs): the keys that one which is not finite sees shall know
      // it, others not.
      const bool is_good = !is_empty && IsFinite(q[i], head.width) && IsFinite(dout[i], head.value_width);
      s.lse[r + i] = is_empty ? -kNegativeInfinity : is_good ? lse : __builtin_nanf("");
      s.delta[r + i] = is_empty ? 0 : head.delta.data[row * head.delta.stride];
      widths[i] = is_good ? head.width : 0;
      value_widths[i] = is_good ? head.value_width : 0;
      PackWords(q[i], widths[i], head.width, SignFlip(head.scale), s.q + (r + i - begin) * kColumns,
                kStripRows);
      PackWords(dout[i], value_widths[i], head.value_width, 0, s.dout + (r + i - begin) * kColumns,
                kStripRows);
    }
    PackRowPair(q[0], widths[0], q[1], widths[1], nullptr, head.width, s.q_pairs + r / 2 * kColumns,
                kQueryPairs);
    PackRowPair(dout[0], value_widths[0], dout[1], value_widths[1], nullptr, head.value_width,
                s.dout_pairs + r / 2 * kColumns, kQueryPairs);
  }
}

// x · yᵀ along the width: 6 rows by the first num_keys of 64 keys, rounded up to whole vectors; then zeros.
LONGSPAN_INLINE void ProductTile(const uint32_t* rows, const uint32_t* keys, int64_t width, int num_keys,
                                 float (&tile)[kStripRows][kPanelKeys]) {
  ForTileColumns(
      num_keys, [&](auto vectors, int64_t) __attribute__((always_inline)) {
        constexpr int kVectors = decltype(vectors)::value;
        Vec c[kStripRows][kVectors];
        Clear(c);
        MultiplyAddAlongWidth(c, rows, kStripRows, keys, width);
#pragma GCC unroll 8
        for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
          for (int j = 0; j < kTileVectors; ++j) Store(&tile[r][j * kLanes], j < kVectors ? c[r][j] : Set(0));
      });
}

// P and dS of one tile.
template <bool kMasked, bool kCapped>
LONGSPAN_INLINE void WeightTile(const BackwardHead& head, const BackwardScratch& s, int64_t first_row,
                                int64_t panel, const TileMask& mask) {
  const int num_keys = kMasked ? EndBit(mask.any) : kPanelKeys;
  alignas(64) float scores[kStripRows][kPanelKeys], dp[kStripRows][kPanelKeys];
  ProductTile(s.q, s.k_width_pairs + panel * kPanelKeys * RowWords(head.width), head.width, num_keys, scores);
  ProductTile(s.dout, s.v_width_pairs + panel * kPanelKeys * RowWords(head.value_width), head.value_width,
              num_keys, dp);
  const Vec scale = Set(kCapped ? Magnitude(head.scale) / head.soft_cap : Magnitude(head.scale));
  const Vec log2e = Set(kLog2E);
  for (int64_t pair = 0; pair < kStripPairs; ++pair) {
    const int64_t row = first_row + 2 * pair;
    uint32_t* p_pairs = s.p_pairs + row / 2 * kPairRow + panel * kPanelKeys;
    uint32_t* ds_pairs = s.ds_pairs + row / 2 * kPairRow + panel * kPanelKeys;
    uint32_t* ds = s.ds + row * kGradientRow + panel * kPanelKeys / 2;
#pragma GCC unroll 2
    for (int64_t begin = 0; begin < kPanelKeys; begin += 2 * kLanes) {
      Words p[2], gradient[2];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const Vec lse = Set(s.lse[row + i]), delta = Set(s.delta[row + i]);
        Vec weight[2], product[2];
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
          const int64_t key = begin + j * kLanes;
          // From the product to the score as the forward pass does it, rounding for rounding: lse is of
          // those.
          Vec score = Mul(Load(&scores[2 * pair + i][key]), scale);
          Vec dscore = Sub(Load(&dp[2 * pair + i][key]), delta);
          if constexpr (kCapped) {
            const Vec t = Tanh(score);
            score = Mul(t, Set(head.soft_cap));
            dscore = Mul(dscore, Sub(Set(1), Mul(t, t)));
          }
          weight[j] = Exp2ForBf16(Mul(Sub(score, lse), log2e));
          product[j] = Mul(weight[j], dscore);
          if constexpr (kMasked) {
            weight[j] = Select(mask.rows[2 * pair + i] >> key, weight[j], Set(0));
            product[j] = Select(mask.rows[2 * pair + i] >> key, product[j], Set(0));
          }
        }
        p[i] = Narrow(weight[0], weight[1]);
        gradient[i] = Narrow(product[0], product[1]);
        StoreWords(ds + i * kGradientRow + begin / 2, gradient[i]);
      }
      StoreWords(p_pairs + begin, InterleaveLow(p[0], p[1]));
      StoreWords(p_pairs + begin + kWords, InterleaveHigh(p[0], p[1]));
      StoreWords(ds_pairs + begin, InterleaveLow(gradient[0], gradient[1]));
      StoreWords(ds_pairs + begin + kWords, InterleaveHigh(gradient[0], gradient[1]));
    }
  }
}

// The same under a soft cap, apart from the loop without one.
__attribute__((noinline)) void CappedWeightTile(const BackwardHead& head, const BackwardScratch& s,
                                                int64_t first_row, int64_t panel, const TileMask& mask) {
  if (mask.rows != nullptr) {
    WeightTile<true, true>(head, s, first_row, panel, mask);
  } else {
    WeightTile<false, true>(head, s, first_row, panel, mask);
  }
}

// Six keys' gradients += weightsᵀ · x over the pairs of rows [begin, end): weights are p or ds from the first
// of these keys on, x is dout or q.
LONGSPAN_INLINE void AddKeyGradients(const uint32_t* weights, const uint32_t* x, int64_t begin, int64_t end,
                                     int64_t width, float* gradients) {
  ForTileColumns(
      width, [&](auto vectors, int64_t column) __attribute__((always_inline)) {
        constexpr int kVectors = decltype(vectors)::value;
        Vec c[kStripRows][kVectors];
        Clear(c);
        MultiplyAddPairs(c, weights + begin * kPairRow, 1, kPairRow,
                         x + PanelOffset(column, kQueryPairs) + begin * kColumns, end - begin);
        float* to = gradients + PanelOffset(column, kKeyBlock);
#pragma GCC unroll 8
        for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
          for (int j = 0; j < kVectors; ++j) {
            float* at = to + r * kColumns + j * kLanes;
            Store(at, Add(Load(at), c[r][j]));
          }
      });
}

void BackwardQueries(const BackwardHead& head, const QueryBlock& queries, int num_panels,
                     const TileMask* tiles, float* scratch) {
  const BackwardScratch s(head, scratch);
  const int64_t num_tiles = RoundUp(queries.num_rows, kStripRows) / kStripRows * num_panels;
  int64_t first = 0, last = num_tiles - 1;  // that some row sees
  while (first < last && tiles[first].any == 0) ++first;
  while (first < last && tiles[last].any == 0) --last;
  const int64_t first_strip = first / num_panels, num_strips = last / num_panels + 1;
  for (int64_t strip = first_strip; strip < num_strips; ++strip) {
    PackStrip(head, queries, strip * kStripRows, s);
    for (int64_t panel = 0; panel < num_panels; ++panel) {
      const TileMask& tile = tiles[strip * num_panels + panel];
      if (tile.any == 0) {
        for (int64_t pair = strip * kStripPairs; pair < (strip + 1) * kStripPairs; ++pair) {
          ClearWords(kPanelKeys, s.p_pairs + pair * kPairRow + panel * kPanelKeys);
          ClearWords(kPanelKeys, s.ds_pairs + pair * kPairRow + panel * kPanelKeys);
        }
      } else if (head.soft_cap != 0) {
        CappedWeightTile(head, s, strip * kStripRows, panel, tile);
      } else if (tile.rows != nullptr) {
        WeightTile<true, false>(head, s, strip * kStripRows, panel, tile);
      } else {
        WeightTile<false, false>(head, s, strip * kStripRows, panel, tile);
      }
    }
  }

  for (int64_t key = 0; key < num_panels * kPanelKeys; key += kStripRows) {
    const StripRange strips = StripsThatSeeSix(tiles, num_panels, num_strips, key);
    if (strips.begin == strips.end) continue;
    const int64_t begin = strips.begin * kStripPairs, end = strips.end * kStripPairs;
    AddKeyGradients(s.p_pairs + key, s.dout_pairs, begin, end, head.value_width, s.dv + key * kColumns);
    AddKeyGradients(s.ds_pairs + key, s.q_pairs, begin, end, head.width, s.dk + key * kColumns);
  }
}

void BackwardDq(const BackwardHead& head, const QueryBlock& queries, int num_panels, const TileMask* tiles,
                float* scratch) {
  const BackwardScratch s(head, scratch);
  const Vec scale = Set(head.scale);
  for (int64_t first_row = 0; first_row < queries.num_rows; first_row += kStripRows, tiles += num_panels) {
    uint64_t any = 0;
    for (int panel = 0; panel < num_panels; ++panel) any |= tiles[panel].any;
    if (any == 0) continue;
    const int64_t num_rows = Least(kStripRows, queries.num_rows - first_row);
    const int64_t later = first_row + kPrefetchRows;
    for (int64_t r = later; r < Least(later + kStripRows, queries.num_rows); ++r)
      for (int64_t i = 0; i < head.width; i += kLanes)
        __builtin_prefetch(head.dq.data + queries.rows[r] * head.dq.stride + i, 1);
    ForTileColumns(
        head.width, [&](auto vectors, int64_t column) __attribute__((always_inline)) {
          constexpr int kVectors = decltype(vectors)::value;
          Vec c[kStripRows][kVectors];
          Clear(c);
          for (int panel = 0; panel < num_panels; ++panel) {
            if (tiles[panel].any == 0) continue;
            const int64_t first = panel * kPanelKeys / 2;
            const int64_t begin = first + LowestBit(tiles[panel].any) / 2;
            const int64_t end = first + (EndBit(tiles[panel].any) + 1) / 2;
            MultiplyAddPairs(c, s.ds + first_row * kGradientRow + begin, kGradientRow, 1,
                             s.k_pairs + PanelOffset(column, kKeyBlock / 2) + begin * kColumns, end - begin);
          }
#pragma GCC unroll 8
          for (int r = 0; r < kStripRows; ++r) {
            if (r >= num_rows) break;
            float* to = head.dq.data + queries.rows[first_row + r] * head.dq.stride + column;
#pragma GCC unroll 8
            for (int j = 0; j < kVectors; ++j)
              AddTo(to + j * kLanes, Mul(c[r][j], scale), head.width - column - j * kLanes);
          }
        });
  }
}

void BackwardEnd(const BackwardHead& head, const KeyPanel* keys, int num_panels, float* scratch) {
  const BackwardScratch s(head, scratch);
  for (int p = 0; p < num_panels; ++p) {
    AddRows(s.dk + p * kPanelKeys * kColumns, kKeyBlock, keys[p], head.width, head.scale, head.dk);
    AddRows(s.dv + p * kPanelKeys * kColumns, kKeyBlock, keys[p], head.value_width, 1, head.dv);
  }
}

}  // namespace
}  // namespace longspan::cpu
