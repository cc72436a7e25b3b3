// The forward kernels on pairs of bf16. See attention_pairs_impl.h.
//
// For each strip: the products q·k of all its tiles into a strip buffer, masked to −∞; one new maximum per
// row and key block; the weights, rounded to bf16, over their own products; their product with the values
// from zero, added to the output so far. The maximum subtracted is that of the products, so that the largest
// weight is exactly 1. Sums are of unrounded weights, so that lse is an
// f32 one.
#pragma once

#include "backend/cpu/attention_pairs_impl.h"

namespace longspan::cpu {
namespace {

constexpr BlockSize kForwardBlock = {192, 16, kStripRows};
// Distance of two rows of the strip buffer, in words: 16 more than its columns, so that rows begin in
// different cache sets.
constexpr int64_t kScoreRow = kForwardBlock.panels * kPanelKeys + 16;
constexpr int64_t kPanelPairs = kPanelKeys / 2;

struct ForwardScratch {
  uint32_t* q;    // row panels of kForwardBlock.rows
  float* out;     // panels of kForwardBlock.rows rows, unnormalised
  float* max;     // [kForwardBlock.rows], of q·k
  float* sum;     // [kForwardBlock.rows]
  float* scores;  // [kStripRows][kScoreRow]

  ForwardScratch(const ForwardHead& head, float* scratch)
      : q(reinterpret_cast<uint32_t*>(scratch)),
        out(scratch + kForwardBlock.rows * PanelWidth(PairsOf(head.width))),
        max(out + kForwardBlock.rows * PanelWidth(head.value_width)),
        sum(max + kForwardBlock.rows),
        scores(sum + kForwardBlock.rows) {}
};

int64_t ForwardScratchFloats(int64_t width, int64_t value_width) {
  return kForwardBlock.rows * (PanelWidth(PairsOf(width)) + PanelWidth(value_width) + 2) +
         kStripRows * kScoreRow;
}

// A packed panel: keys as width pairs, then its values as row pairs.
int64_t PanelFloats(int64_t width, int64_t value_width) {
  return kPanelKeys * RowWords(width) + kPanelPairs * PanelWidth(value_width);
}

void PackPanel(const ConstRows& k, const ConstRows& v, int64_t width, int64_t value_width,
               const KeyPanel& keys, float* panel) {
  auto* words = reinterpret_cast<uint32_t*>(panel);
  PackWidthPairs(k, keys, width, words);
  uint64_t not_finite =
      PackKeyPairs(v, keys, nullptr, value_width, words + kPanelKeys * RowWords(width), kPanelPairs);
  // What sees such a value shall know it, by its score; what doesn't shall not.
  for (; not_finite != 0; not_finite &= not_finite - 1) words[LowestBit(not_finite)] = 0x7fc07fc0;
}

// Numbers in the strip buffer, times this, are scores. Never 0, for there −∞ stands for what is not seen:
// with a scale of 0 the packed queries are zeros.
LONGSPAN_INLINE float ScoreScale(const ForwardHead& head) {
  return head.soft_cap != 0 || head.scale == 0 ? 1.0f : Magnitude(head.scale);
}

void ForwardBegin(const ForwardHead& head, const QueryBlock& queries, float* scratch) {
  const ForwardScratch s(head, scratch);
  const int64_t strip_end = RoundUp(queries.num_rows, kStripRows);
  for (int64_t r = 0; r < strip_end; ++r) {
    float* out = s.out + r * kColumns;
    s.max[r] = kNegativeInfinity;
    s.sum[r] = 0;
    ClearRow(head.value_width, out, kForwardBlock.rows);
    // Rows past the end are zeros.
    const bool is_zero = r >= queries.num_rows || head.scale == 0;
    const int64_t row = queries.rows[Least(r, queries.num_rows - 1)];
    PrefetchRow(head.q, queries.rows[Least(r + kPrefetchRows, queries.num_rows - 1)], head.width);
    PackWords(RowOf(head.q, row), is_zero ? 0 : head.width, head.width, SignFlip(head.scale),
              s.q + r * kColumns, kForwardBlock.rows);
    if (head.first || r >= queries.num_rows) continue;
    s.max[r] = head.state_max.data[row * head.state_max.stride];
    s.sum[r] = head.state_sum.data[row * head.state_sum.stride];
    const ConstRows state_out = {head.state_out.data, head.state_out.stride, false};
    PackRow(state_out, row, head.value_width, 1, out, kForwardBlock.rows);
  }
}

// One tile of products, and the maxima of its rows lane by lane. Columns after the last that is seen are not
// computed.
template <bool kCapped>
LONGSPAN_INLINE void ScoreTile(const ForwardHead& head, const uint32_t* q, const uint32_t* keys,
                               const TileMask& mask, float* scores, Vec (&max)[kStripRows]) {
  ForTileColumns(
      EndBit(mask.any), [&](auto vectors, int64_t) __attribute__((always_inline)) {
        constexpr int kVectors = decltype(vectors)::value;
        Vec c[kStripRows][kVectors];
        Clear(c);
        MultiplyAddAlongWidth(c, q, kForwardBlock.rows, keys, head.width);
        if constexpr (kCapped) Cap(c, Magnitude(head.scale) / head.soft_cap, head.soft_cap);
        if (mask.rows != nullptr) {
#pragma GCC unroll 8
          for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
            for (int j = 0; j < kVectors; ++j)
              c[r][j] = Select(mask.rows[r] >> (j * kLanes), c[r][j], Set(kNegativeInfinity));
        }
#pragma GCC unroll 8
        for (int r = 0; r < kStripRows; ++r) {
          Vec row_max = c[r][0];
#pragma GCC unroll 8
          for (int j = 1; j < kVectors; ++j) row_max = Max(row_max, c[r][j]);
          max[r] = Max(max[r], row_max);
#pragma GCC unroll 8
          for (int j = 0; j < kTileVectors; ++j)
            Store(scores + r * kScoreRow + j * kLanes, j < kVectors ? c[r][j] : Set(kNegativeInfinity));
        }
      });
}

// scores[0 … n) ← e^(scale · (score − max)) as bf16, from its first byte on; returns their sum. n is a
// multiple of 64.
LONGSPAN_INLINE float WeightsOfRow(float* scores, int64_t n, float max, float scale) {
  auto* weights = reinterpret_cast<uint32_t*>(scores);
  Vec sum[2] = {Set(0), Set(0)};
  const Vec m = Set(max), factor = Set(scale * kLog2E);
  for (int64_t i = 0; i < n; i += kPanelKeys) {
    Vec p[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) p[j] = Exp2ForBf16(Mul(Sub(Load(scores + i + j * kLanes), m), factor));
    sum[0] = Add(sum[0], Add(p[0], p[1]));
    sum[1] = Add(sum[1], Add(p[2], p[3]));
    StoreWords(weights + i / 2, Narrow(p[0], p[1]));
    StoreWords(weights + i / 2 + kWords, Narrow(p[2], p[3]));
  }
  return SumOf(Add(sum[0], sum[1]));
}

template <bool kCapped>
void ForwardStrip(const ForwardHead& head, const ForwardScratch& s, int64_t first_row, const uint32_t* panels,
                  int num_panels, const TileMask* tiles) {
  const int64_t panel_words = PanelFloats(head.width, head.value_width);
  struct Visible {
    const uint32_t* values;
    int begin, end;  // pairs of keys that some row sees lie in [begin, end)
  } visible[kForwardBlock.panels];
  int num_visible = 0;
  Vec lane_max[kStripRows];
  for (int r = 0; r < kStripRows; ++r) lane_max[r] = Set(kNegativeInfinity);
  for (int p = 0; p < num_panels; ++p) {
    if (tiles[p].any == 0) continue;
    const uint32_t* keys = panels + p * panel_words;
    ScoreTile<kCapped>(head, s.q + first_row * kColumns, keys, tiles[p], s.scores + num_visible * kPanelKeys,
                       lane_max);
    visible[num_visible++] = {keys + kPanelKeys * RowWords(head.width), LowestBit(tiles[p].any) / 2,
                              (EndBit(tiles[p].any) + 1) / 2};
  }
  if (num_visible == 0) return;

  const float scale = ScoreScale(head);
  float rescale[kStripRows];
  for (int r = 0; r < kStripRows; ++r) {
    const float old_max = s.max[first_row + r];
    const float block_max = MaxOf(lane_max[r]);
    const float new_max = old_max > block_max ? old_max : block_max;
    // A row that has seen nothing yet: every weight is e^(−∞ − 0) = 0, and so is the factor.
    const float finite_max = new_max == kNegativeInfinity ? 0.0f : new_max;
    rescale[r] = ScalarExp2((old_max - finite_max) * (scale * kLog2E));
    const float block_sum =
        WeightsOfRow(s.scores + r * kScoreRow, num_visible * kPanelKeys, finite_max, scale);
    s.max[first_row + r] = new_max;
    s.sum[first_row + r] = s.sum[first_row + r] * rescale[r] + block_sum;
  }

  const auto* weights = reinterpret_cast<const uint32_t*>(s.scores);
  ForTileColumns(
      head.value_width, [&](auto vectors, int64_t column) __attribute__((always_inline)) {
        constexpr int kVectors = decltype(vectors)::value;
        Vec c[kStripRows][kVectors];
        Clear(c);
        for (int t = 0; t < num_visible; ++t) {
          const Visible& tile = visible[t];
          MultiplyAddPairs(c, weights + t * kPanelPairs + tile.begin, kScoreRow, 1,
                           tile.values + PanelOffset(column, kPanelPairs) + tile.begin * kColumns,
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
  for (int64_t row = 0; row < queries.num_rows; row += kStripRows, tiles += num_panels)
    strip(head, s, row, reinterpret_cast<const uint32_t*>(panels), num_panels, tiles);
}

void ForwardEnd(const ForwardHead& head, const QueryBlock& queries, float* scratch) {
  const ForwardScratch s(head, scratch);
  const float scale = head.last ? ScoreScale(head) : 1.0f;  // the state's maximum is that of the products
  for (int64_t r = 0; r < queries.num_rows; ++r) {
    if (head.last) {
      const int64_t later = queries.rows[Least(r + kPrefetchRows, queries.num_rows - 1)];
      auto* out = static_cast<uint16_t*>(head.out) + later * head.out_stride;
      for (int64_t i = 0; i < head.value_width; i += 2 * kWords) __builtin_prefetch(out + i, 1);
      __builtin_prefetch(head.lse.data + later * head.lse.stride, 1);
    }
    StoreForwardRow(head, queries.rows[r], s.max[r] * scale, s.sum[r], s.out + r * kColumns,
                    kForwardBlock.rows);
  }
}

}  // namespace
}  // namespace longspan::cpu
