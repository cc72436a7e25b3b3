// The backward kernels. See attention_impl.h.
//
// A key block keeps its packed keys, values and their gradients in scratch memory while query blocks pass.
// For each tile the weights are recomputed, P = e^(S − lse), then dS = P ∘ (dO·Vᵀ − Δ), under a soft cap c
// times 1 − (S/c)². Products of a whole query block follow: dV += Pᵀ·dO, dK += dSᵀ·Q with the scale already
// in the packed Q, and dQ += scale · dS·K. Each sum over a block starts from zero.
#pragma once

#include "backend/cpu/attention_tile_impl.h"

namespace longspan::cpu {
namespace {

constexpr BlockSize kBackwardBlock = {192, 3, kStripRows};

constexpr int64_t kKeyBlock = kBackwardBlock.panels * kPanelKeys;
static_assert(kKeyBlock % kStripRows == 0);
// Distance of two rows of P and of dS: 16 more than their columns, so that rows begin in different cache
// sets.
constexpr int64_t kWeightRow = kKeyBlock + 16;

struct BackwardScratch {
  float *k_transposed, *v_transposed;  // [panel][width][64]
  float *k, *dk, *dv;                  // panels of kKeyBlock rows
  float *q, *dout;                     // panels of kBackwardBlock.rows rows
  float *p, *ds;                       // [kBackwardBlock.rows][kWeightRow]
  float *lse, *delta;                  // [kBackwardBlock.rows]

  BackwardScratch(const BackwardHead& head, float* scratch)
      : k_transposed(scratch),
        v_transposed(k_transposed + kKeyBlock * head.width),
        k(v_transposed + kKeyBlock * head.value_width),
        dk(k + kKeyBlock * PanelWidth(head.width)),
        dv(dk + kKeyBlock * PanelWidth(head.width)),
        q(dv + kKeyBlock * PanelWidth(head.value_width)),
        dout(q + kBackwardBlock.rows * PanelWidth(head.width)),
        p(dout + kBackwardBlock.rows * PanelWidth(head.value_width)),
        ds(p + kBackwardBlock.rows * kWeightRow),
        lse(ds + kBackwardBlock.rows * kWeightRow),
        delta(lse + kBackwardBlock.rows) {}
};

int64_t BackwardScratchFloats(int64_t width, int64_t value_width) {
  return kKeyBlock * (width + value_width + 2 * PanelWidth(width) + PanelWidth(value_width)) +
         kBackwardBlock.rows * (PanelWidth(width) + PanelWidth(value_width) + 2 * kWeightRow + 2);
}

// From the first `count` rows of panels of kKeyBlock rows.
void SubtractMean(const float* mean, int64_t count, int64_t width, float* panels) {
  for (int64_t j = 0; j < count; ++j)
    for (int64_t i = 0; i < width; ++i) panels[PanelOffset(i, kKeyBlock) + j * kColumns] -= mean[i];
}

void BackwardBegin(const BackwardHead& head, const KeyPanel* keys, int num_panels, float* scratch) {
  const BackwardScratch s(head, scratch);
  for (int p = 0; p < num_panels; ++p) {
    PackTransposed(head.k, keys[p], head.width, s.k_transposed + p * kPanelKeys * head.width);
    PackTransposed(head.v, keys[p], head.value_width, s.v_transposed + p * kPanelKeys * head.value_width);
    float* rows = s.k + p * kPanelKeys * kColumns;
    PackKeyRows(head.k, keys[p], head.width, rows, kKeyBlock);
    if (head.key_mean != nullptr) SubtractMean(head.key_mean, keys[p].count, head.width, rows);
  }
  __builtin_memset(s.dk, 0, sizeof(float) * static_cast<size_t>(kKeyBlock * PanelWidth(head.width)));
  __builtin_memset(s.dv, 0, sizeof(float) * static_cast<size_t>(kKeyBlock * PanelWidth(head.value_width)));
}

// Asks for a row of x, or of dq, to be in the L2 cache.
LONGSPAN_INLINE void FetchRow(const void* data, int64_t row_bytes, int64_t row, int64_t bytes) {
  const char* x = static_cast<const char*>(data) + row * row_bytes;
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(x + i, 0, 2);
}

// What a strip from this row on will read and write: rows of heads lie far apart, and the third level of
// cache takes long to answer.
void FetchStrip(const BackwardHead& head, const QueryBlock& queries, int64_t first_row) {
  const int64_t end = Least(queries.num_rows, first_row + kStripRows);
  const int64_t q_bytes = head.q.is_bf16 ? 2 : 4, dout_bytes = head.dout.is_bf16 ? 2 : 4;
  for (int64_t r = first_row; r < end; ++r) {
    const int64_t row = queries.rows[r];
    FetchRow(head.q.data, head.q.stride * q_bytes, row, head.width * q_bytes);
    FetchRow(head.dout.data, head.dout.stride * dout_bytes, row, head.value_width * dout_bytes);
    FetchRow(head.dq.data, head.dq.stride * 4, row, head.width * 4);
  }
}
constexpr int64_t kFetchedStrips = 4;  // ahead

// A strip's queries.
void PackQueries(const BackwardHead& head, const QueryBlock& queries, const BackwardScratch& s,
                 int64_t first_row) {
  for (int64_t r = first_row; r < first_row + kStripRows; ++r) {
    float *q = s.q + r * kColumns, *dout = s.dout + r * kColumns;
    const int64_t row = r < queries.num_rows ? queries.rows[r] : -1;
    const float lse = row < 0 ? kNegativeInfinity : head.lse.data[row * head.lse.stride];
    if (lse ==
        kNegativeInfinity) {  // no such row, or one that sees nothing: all its weights are e^(0 − ∞) = 0
      s.lse[r] = -kNegativeInfinity;
      s.delta[r] = 0;
      ClearRow(head.width, q, kBackwardBlock.rows);
      ClearRow(head.value_width, dout, kBackwardBlock.rows);
    } else {
      s.lse[r] = lse;
      s.delta[r] = head.delta.data[row * head.delta.stride];
      PackRow(head.q, row, head.width, head.scale, q, kBackwardBlock.rows);
      PackRow(head.dout, row, head.value_width, 1, dout, kBackwardBlock.rows);
      // Weights of 0 meet these rows (PackKeyRows): the keys that such a row sees shall know it, others not.
      if (!IsFinite(q, kBackwardBlock.rows, head.width) ||
          !IsFinite(dout, kBackwardBlock.rows, head.value_width)) {
        s.lse[r] = __builtin_nanf("");
        ClearRow(head.width, q, kBackwardBlock.rows);
        ClearRow(head.value_width, dout, kBackwardBlock.rows);
      }
    }
  }
}

// P and dS of one tile.
template <bool kCapped>
void WeightTile(const BackwardHead& head, const BackwardScratch& s, int64_t first_row, int panel,
                const TileMask& mask) {
  float* p = s.p + first_row * kWeightRow + panel * kPanelKeys;
  float* ds = s.ds + first_row * kWeightRow + panel * kPanelKeys;
  const float* k = s.k_transposed + panel * kPanelKeys * head.width;
  const float* v = s.v_transposed + panel * kPanelKeys * head.value_width;
  if (mask.any == 0) {
    for (int r = 0; r < kStripRows; ++r)
      for (int j = 0; j < kPanelKeys; j += kLanes) {
        Store(p + r * kWeightRow + j, Set(0));
        Store(ds + r * kWeightRow + j, Set(0));
      }
    return;
  }
  for (int column = 0; column < kPanelKeys; column += kTileColumns) {
    Vec c[kStripRows][kTileVectors];
    Clear(c);
    MultiplyAddAlongWidth(c, s.q + first_row * kColumns, kBackwardBlock.rows, k + column, head.width);
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r) {
      const Vec lse = Set(s.lse[first_row + r]);
#pragma GCC unroll 8
      for (int j = 0; j < kTileVectors; ++j) {
        const int64_t at = r * kWeightRow + column + j * kLanes;
        if constexpr (kCapped) {
          const Vec t = Tanh(Mul(c[r][j], Set(1 / head.soft_cap)));
          c[r][j] = Mul(t, Set(head.soft_cap));
          Store(ds + at, Sub(Set(1), Mul(t, t)));  // its derivative, until dS takes its place
        }
        Vec weight = Exp2(Mul(Sub(c[r][j], lse), Set(kLog2E)));
        if (mask.rows != nullptr) weight = Select(mask.rows[r] >> (column + j * kLanes), weight, Set(0));
        Store(p + at, weight);
      }
    }
    Clear(c);
    MultiplyAddAlongWidth(c, s.dout + first_row * kColumns, kBackwardBlock.rows, v + column,
                          head.value_width);
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r) {
      const Vec delta = Set(s.delta[first_row + r]);
#pragma GCC unroll 8
      for (int j = 0; j < kTileVectors; ++j) {
        const int64_t at = r * kWeightRow + column + j * kLanes;
        Vec gradient = Mul(Load(p + at), Sub(c[r][j], delta));
        if constexpr (kCapped) gradient = Mul(gradient, Load(ds + at));
        if (mask.rows != nullptr) gradient = Select(mask.rows[r] >> (column + j * kLanes), gradient, Set(0));
        Store(ds + at, gradient);
      }
    }
  }
}

// Six keys' gradients += weightsᵀ · x: weights are p or ds from the first of these keys on, x is dout or q.
LONGSPAN_INLINE void AddKeyGradients(const float* weights, const float* x, int64_t row_begin, int64_t row_end,
                                     int64_t width, float* gradients) {
  ForTileColumns(
      width, [&](auto vectors, int64_t column) __attribute__((always_inline)) {
        constexpr int kVectors = decltype(vectors)::value;
        Vec c[kStripRows][kVectors];
        Clear(c);
        MultiplyAdd(c, weights + row_begin * kWeightRow, 1, kWeightRow,
                    x + PanelOffset(column, kBackwardBlock.rows) + row_begin * kColumns, row_end - row_begin);
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
  const int64_t num_strips = RoundUp(queries.num_rows, kStripRows) / kStripRows;
  const auto weight_tile = head.soft_cap != 0 ? WeightTile<true> : WeightTile<false>;
  for (int64_t strip = 0; strip < num_strips; ++strip) {
    FetchStrip(head, queries, (strip + kFetchedStrips) * kStripRows);
    PackQueries(head, queries, s, strip * kStripRows);
    for (int panel = 0; panel < num_panels; ++panel)
      weight_tile(head, s, strip * kStripRows, panel, tiles[strip * num_panels + panel]);
  }

  for (int64_t key = 0; key < num_panels * kPanelKeys; key += kStripRows) {
    const StripRange strips = StripsThatSeeSix(tiles, num_panels, num_strips, key);
    if (strips.begin == strips.end) continue;
    const int64_t begin = strips.begin * kStripRows, end = strips.end * kStripRows;
    AddKeyGradients(s.p + key, s.dout, begin, end, head.value_width, s.dv + key * kColumns);
    AddKeyGradients(s.ds + key, s.q, begin, end, head.width, s.dk + key * kColumns);
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
    ForTileColumns(
        head.width, [&](auto vectors, int64_t column) __attribute__((always_inline)) {
          constexpr int kVectors = decltype(vectors)::value;
          Vec c[kStripRows][kVectors];
          Clear(c);
          for (int panel = 0; panel < num_panels; ++panel) {
            if (tiles[panel].any == 0) continue;
            const int64_t begin = panel * kPanelKeys + LowestBit(tiles[panel].any);
            const int64_t end = panel * kPanelKeys + EndBit(tiles[panel].any);
            MultiplyAdd(c, s.ds + first_row * kWeightRow + begin, kWeightRow, 1,
                        s.k + PanelOffset(column, kKeyBlock) + begin * kColumns, end - begin);
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
    AddRows(s.dk + p * kPanelKeys * kColumns, kKeyBlock, keys[p], head.width, 1, head.dk);
    AddRows(s.dv + p * kPanelKeys * kColumns, kKeyBlock, keys[p], head.value_width, 1, head.dv);
  }
}

}  // namespace
}  // namespace longspan::cpu
