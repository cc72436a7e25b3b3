// The forward kernels. See attention_impl.h.
//
// For each strip: the scores of all its tiles into a strip buffer that stays in the L1 cache, masked to −∞;
// one new maximum per row and key block; the weights in place; their product with the values from zero, added
// to the output so far. Scores are natural logarithms' (the scale goes into the packed queries), so that the
// state's maximum is exactly the one subtracted here.
#pragma once

#include "backend/cpu/attention_tile_impl.h"

namespace longspan::cpu {
namespace {

constexpr BlockSize kForwardBlock = {
    192, 8, kStripRows};  // 512 keys, which with the query block stay in the L2 cache

// Distance of two rows of the strip buffer: 16 more than its columns, so that rows begin in different cache
// sets.
constexpr int64_t kScoreRow = kForwardBlock.panels * kPanelKeys + 16;

struct ForwardScratch {
  float* q;       // panels of kForwardBlock.rows rows
  float* out;     // the same, unnormalised
  float* max;     // [kForwardBlock.rows]
  float* sum;     // [kForwardBlock.rows]
  float* scores;  // [kStripRows][kScoreRow]

  ForwardScratch(const ForwardHead& head, float* scratch)
      : q(scratch),
        out(q + kForwardBlock.rows * PanelWidth(head.width)),
        max(out + kForwardBlock.rows * PanelWidth(head.value_width)),
        sum(max + kForwardBlock.rows),
        scores(sum + kForwardBlock.rows) {}
};

int64_t ForwardScratchFloats(int64_t width, int64_t value_width) {
  return kForwardBlock.rows * (PanelWidth(width) + PanelWidth(value_width) + 2) + kStripRows * kScoreRow;
}

// A packed panel: keys transposed, then the panels of its values.
int64_t PanelFloats(int64_t width, int64_t value_width) {
  return kPanelKeys * (width + PanelWidth(value_width));
}

void PackPanel(const ConstRows& k, const ConstRows& v, int64_t width, int64_t value_width,
               const KeyPanel& keys, float* panel) {
  PackTransposed(k, keys, width, panel);
  uint64_t not_finite = PackKeyRows(v, keys, value_width, panel + kPanelKeys * width, kPanelKeys);
  // What sees such a value shall know it, by its score; what doesn't shall not.
  for (; not_finite != 0; not_finite &= not_finite - 1) panel[LowestBit(not_finite)] = __builtin_nanf("");
}

void ForwardBegin(const ForwardHead& head, const QueryBlock& queries, float* scratch) {
  const ForwardScratch s(head, scratch);
  const int64_t strip_end = RoundUp(queries.num_rows, kStripRows);
  for (int64_t r = 0; r < strip_end; ++r) {
    float* out = s.out + r * kColumns;
    s.max[r] = kNegativeInfinity;
    s.sum[r] = 0;
    ClearRow(head.value_width, out, kForwardBlock.rows);
    if (r >= queries.num_rows) {
      ClearRow(head.width, s.q + r * kColumns, kForwardBlock.rows);
      continue;
    }
    const int64_t row = queries.rows[r];
    PackRow(head.q, row, head.width, head.scale, s.q + r * kColumns, kForwardBlock.rows);
    if (head.first) continue;
    s.max[r] = head.state_max.data[row * head.state_max.stride];
    s.sum[r] = head.state_sum.data[row * head.state_sum.stride];
    const ConstRows state_out = {head.state_out.data, head.state_out.stride, false};
    PackRow(state_out, row, head.value_width, 1, out, kForwardBlock.rows);
  }
}

// One tile of scores, and the maxima of its rows lane by lane. Asks for width / 4 lines from `ahead` on.
template <bool kCapped>
LONGSPAN_INLINE void ScoreTile(const ForwardHead& head, const float* q, const float* keys, const float* ahead,
                               const TileMask& mask, float* scores, Vec (&max)[kStripRows]) {
  for (int column = 0; column < kPanelKeys; column += kTileColumns) {
    Vec c[kStripRows][kTileVectors];
    Clear(c);
    constexpr int64_t kSteps = 16;
    for (int64_t i = 0; i < head.width; i += kSteps) {
#pragma GCC unroll 4
      for (int line = 0; line < 4; ++line) __builtin_prefetch(ahead + 4 * i + 16 * line, 0, 2);  // into L2
      MultiplyAdd(c, q + PanelOffset(i, kForwardBlock.rows), kColumns, 1, keys + column + i * kPanelKeys,
                  Least(kSteps, head.width - i));
    }
    if constexpr (kCapped) Cap(c, 1 / head.soft_cap, head.soft_cap);
    if (mask.rows != nullptr) {
#pragma GCC unroll 8
      for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
        for (int j = 0; j < kTileVectors; ++j)
          c[r][j] = Select(mask.rows[r] >> (column + j * kLanes), c[r][j], Set(kNegativeInfinity));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < kTileVectors; ++j) {
        max[r] = Max(max[r], c[r][j]);
        Store(scores + r * kScoreRow + column + j * kLanes, c[r][j]);
      }
  }
}

// scores[0 … n) ← e^(score − max); returns their sum. n is a multiple of 64.
LONGSPAN_INLINE float WeightsOfRow(float* scores, int64_t n, float max) {
  constexpr int kUnroll = 4;
  Vec sum[kUnroll];
  for (int j = 0; j < kUnroll; ++j) sum[j] = Set(0);
  const Vec m = Set(max), log2e = Set(kLog2E);
  for (int64_t i = 0; i < n; i += kUnroll * kLanes) {
#pragma GCC unroll 8
    for (int j = 0; j < kUnroll; ++j) {
      const Vec p = Exp2(Mul(Sub(Load(scores + i + j * kLanes), m), log2e));
      sum[j] = Add(sum[j], p);
      Store(scores + i + j * kLanes, p);
    }
  }
  return SumOf(Add(Add(sum[0], sum[1]), Add(sum[2], sum[3])));
}

template <bool kCapped>
void ForwardStrip(const ForwardHead& head, const ForwardScratch& s, int64_t first_row, const float* panels,
                  const float* ahead, int num_panels, const TileMask* tiles) {
  const int64_t panel_floats = PanelFloats(head.width, head.value_width);
  struct Visible {
    const float* values;
    int begin, end;  // keys that some row sees lie in [begin, end)
  } visible[kForwardBlock.panels];
  int num_visible = 0;
  Vec lane_max[kStripRows];
  for (int r = 0; r < kStripRows; ++r) lane_max[r] = Set(kNegativeInfinity);
  for (int p = 0; p < num_panels; ++p) {
    if (tiles[p].any == 0) continue;
    const float* keys = panels + p * panel_floats;
    ScoreTile<kCapped>(head, s.q + first_row * kColumns, keys, ahead + p * 4 * head.width, tiles[p],
                       s.scores + num_visible * kPanelKeys, lane_max);
    visible[num_visible++] = {keys + kPanelKeys * head.width, LowestBit(tiles[p].any), EndBit(tiles[p].any)};
  }
  if (num_visible == 0) return;

  float rescale[kStripRows];
  for (int r = 0; r < kStripRows; ++r) {
    const float old_max = s.max[first_row + r];
    const float block_max = MaxOf(lane_max[r]);
    const float new_max = old_max > block_max ? old_max : block_max;
    // A row that has seen nothing yet: every weight is e^(−∞ − 0) = 0, and so is the factor.
    const float finite_max = new_max == kNegativeInfinity ? 0.0f : new_max;
    rescale[r] = ScalarExp2((old_max - finite_max) * kLog2E);
    const float block_sum = WeightsOfRow(s.scores + r * kScoreRow, num_visible * kPanelKeys, finite_max);
    s.max[first_row + r] = new_max;
    s.sum[first_row + r] = s.sum[first_row + r] * rescale[r] + block_sum;
  }

  ForTileColumns(
      head.value_width, [&](auto vectors, int64_t column) __attribute__((always_inline)) {
        constexpr int kVectors = decltype(vectors)::value;
        Vec c[kStripRows][kVectors];
        Clear(c);
        for (int t = 0; t < num_visible; ++t) {
          const Visible& tile = visible[t];
          MultiplyAdd(c, s.scores + t * kPanelKeys + tile.begin, kScoreRow, 1,
                      tile.values + PanelOffset(column, kPanelKeys) + tile.begin * kColumns,
                      tile.end - tile.begin);
        }
        float* out = s.out + PanelOffset(column, kForwardBlock.rows) + first_row * kColumns;
#pragma GCC unroll 8
        for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
          for (int j = 0; j < kVectors; ++j) {
            float* to = out + r * kColumns + j * kLanes;
            Store(to, Fma(Load(to), Set(rescale[r]), c[r][j]));
          }
      });
}

void ForwardKeys(const ForwardHead& head, const QueryBlock& queries, const float* panels, int num_panels,
                 const TileMask* tiles, float* scratch) {
  const ForwardScratch s(head, scratch);
  const auto strip = head.soft_cap != 0 ? ForwardStrip<true> : ForwardStrip<false>;
  // The next key block follows in memory. Each strip asks for its part of it: read by the first strip as it
  // comes, it would come only as fast as the third level of cache answers.
  const float* ahead = panels + num_panels * PanelFloats(head.width, head.value_width);
  for (int64_t row = 0; row < queries.num_rows; row += kStripRows, tiles += num_panels) {
    strip(head, s, row, panels, ahead, num_panels, tiles);
    ahead += num_panels * 4 * head.width;
  }
}

void ForwardEnd(const ForwardHead& head, const QueryBlock& queries, float* scratch) {
  const ForwardScratch s(head, scratch);
  for (int64_t r = 0; r < queries.num_rows; ++r)
    StoreForwardRow(head, queries.rows[r], s.max[r], s.sum[r], s.out + r * kColumns, kForwardBlock.rows);
}

}  // namespace
}  // namespace longspan::cpu
