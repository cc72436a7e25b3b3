// The forward kernels on pairs of bf16. See attention_pairs_impl.h.
//
// For each strip: the products q·k of all its tiles into a strip buffer, masked to −∞; one new maximum per
// row and key block; the weights, rounded to bf16, between the products of the next strip; their product with
// the values from zero, added to the output so far. The maximum subtracted is that of the products, so that
// the largest weight is exactly 1. Sums are of unrounded weights, so that lse is an f32 one.
#pragma once

#include "backend/cpu/attention_pairs_impl.h"

namespace longspan::cpu {
namespace {

constexpr BlockSize kForwardBlock = {192, 16, kStripRows};
// Distance of two rows of the strip buffer, in words: 16 more than its columns, so that rows begin in
// different cache sets.
constexpr int64_t kScoreRow = kForwardBlock.panels * kPanelKeys + 16;
constexpr int64_t kWeightRow = kScoreRow / 2;
constexpr int64_t kPanelPairs = kPanelKeys / 2;

struct ForwardScratch {
  uint32_t* q;        // row panels of kForwardBlock.rows
  float* out;         // panels of kForwardBlock.rows rows, unnormalised
  float* max;         // [kForwardBlock.rows], of q·k
  float* sum;         // [kForwardBlock.rows]
  float* scores;      // [kStripRows][kScoreRow], of a strip
  uint32_t* weights;  // [kStripRows][kWeightRow], of the strip before

  ForwardScratch(const ForwardHead& head, float* scratch)
      : q(reinterpret_cast<uint32_t*>(scratch)),
        out(scratch + kForwardBlock.rows * PanelWidth(PairsOf(head.width))),
        max(out + kForwardBlock.rows * PanelWidth(head.value_width)),
        sum(max + kForwardBlock.rows),
        scores(sum + kForwardBlock.rows),
        weights(reinterpret_cast<uint32_t*>(scores + kStripRows * kScoreRow)) {}
};

int64_t ForwardScratchFloats(int64_t width, int64_t value_width) {
  return kForwardBlock.rows * (PanelWidth(PairsOf(width)) + PanelWidth(value_width) + 2) +
         kStripRows * (kScoreRow + kWeightRow);
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

constexpr unsigned kTileWeights = kStripRows * kTileVectors;  // vectors

// What is known of a strip whose products are in the strip buffer. Its weights are computed tile by tile
// between the products of the next strip: these keep the multipliers busy, those the adders.
struct Strip {
  struct Tile {
    const uint32_t* values;
    int begin, end;  // pairs of keys that some row sees lie in [begin, end)
  };
  int64_t first_row = 0;
  int num_tiles = 0;     // that some row sees
  int num_weighted = 0;  // of them, from the first on: their weights are known
  Tile tiles[kForwardBlock.panels];
  alignas(64) float max[kLanes];      // by row: what is subtracted
  alignas(64) float rescale[kLanes];  // by row: factor of what has been summed up before
  Vec sum[kStripRows];                // of the weights so far, lane by lane
  // From products to powers of two, and for those. Here, so that they are operands in memory: between
  // products no register is left for a constant.
  float factor;
  Exp2Coefficients exp2;
};

// The largest products are known, lane by lane: moves the maxima and sums of the strip's rows to them.
LONGSPAN_INLINE void BeginWeights(const ForwardScratch& s, const Vec (&lane_max)[kStripRows], float scale,
                                  Strip& strip) {
  const Vec old_max = LoadStrip(s.max + strip.first_row), block_max = MaxOfRows(lane_max);
  const Vec new_max = Max(old_max, block_max);
  StoreStrip(s.max + strip.first_row, new_max);
  // A row that has seen nothing yet: every weight is e^(−∞ − 0) = 0, and so is the factor.
  const Vec finite_max = Max(new_max, Set(kLowest));
  Store(strip.max, finite_max);
  Store(strip.rescale, Exp2(Mul(Sub(old_max, finite_max), Set(scale * kLog2E))));
  for (int r = 0; r < kStripRows; ++r) strip.sum[r] = Set(0);
  strip.num_weighted = 0;
  strip.factor = scale * kLog2E;
}

// The weights of a strip's next tile (or of none), e^(scale · (score − max)) as bf16, vector by vector.
class TileWeights {
 public:
  TileWeights(const ForwardScratch& s, Strip& strip, bool is_empty)
      : scores_(s.scores + strip.num_weighted * kPanelKeys),
        weights_(s.weights + strip.num_weighted * kPanelPairs),
        strip_(strip),
        next_(is_empty ? kTileWeights : 0) {
    if (!is_empty) ++strip.num_weighted;
  }
  LONGSPAN_INLINE bool done() const { return next_ == kTileWeights; }
  LONGSPAN_INLINE void Next() {
    if (done()) return;
    const unsigned r = next_ / kTileVectors, at = r * kScoreRow + next_ % kTileVectors * kLanes;
    const Vec x = Mul(Sub(Load(scores_ + at), Set(strip_.max[r])), Set(strip_.factor));
    const Vec p = Exp2ForBf16(x, strip_.exp2);
    strip_.sum[r] = Add(strip_.sum[r], p);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights_ + at / 2),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(p)));
    ++next_;
  }

 private:
  const float* scores_;
  uint32_t* weights_;
  Strip& strip_;
  unsigned next_;
};

// All that are left.
LONGSPAN_INLINE void Weigh(const ForwardScratch& s, Strip& strip) {
  while (strip.num_weighted < strip.num_tiles)
    for (TileWeights weights(s, strip, false); !weights.done();) weights.Next();
}

// One tile of products, and the maxima of its rows lane by lane; meanwhile the weights of a tile of the strip
// before, whose products were in the same place. Columns after the last that is seen are not computed.
template <bool kCapped>
LONGSPAN_INLINE void ScoreTile(const ForwardHead& head, const uint32_t* q, const uint32_t* keys,
                               const TileMask& mask, float* scores, Vec (&max)[kStripRows],
                               TileWeights& before) {
  ForTileColumns(
      EndBit(mask.any), [&](auto vectors, int64_t) __attribute__((always_inline)) {
        constexpr int kVectors = decltype(vectors)::value;
        Vec c[kStripRows][kVectors];
        Clear(c);
        MultiplyAddAlongWidth(
            c, q, kForwardBlock.rows, keys,
            head.width, [&]() __attribute__((always_inline)) { before.Next(); });
        while (!before.done()) before.Next();
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

// The weights are known: adds their products with the values, and their sums, to the strip's output.
LONGSPAN_INLINE void AddValues(const ForwardHead& head, const ForwardScratch& s, const Strip& strip) {
  StoreStrip(s.sum + strip.first_row,
             Fma(LoadStrip(s.sum + strip.first_row), Load(strip.rescale), SumOfRows(strip.sum)));
  ForTileColumns(
      head.value_width, [&](auto vectors, int64_t column) __attribute__((always_inline)) {
        constexpr int kVectors = decltype(vectors)::value;
        Vec c[kStripRows][kVectors];
        Clear(c);
        for (int t = 0; t < strip.num_tiles; ++t) {
          const Strip::Tile& tile = strip.tiles[t];
          MultiplyAddPairs(c, s.weights + t * kPanelPairs + tile.begin, kWeightRow, 1,
                           tile.values + PanelOffset(column, kPanelPairs) + tile.begin * kColumns,
                           tile.end - tile.begin);
        }
        float* out = s.out + PanelOffset(column, kForwardBlock.rows) + strip.first_row * kColumns;
#pragma GCC unroll 8
        for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
          for (int j = 0; j < kVectors; ++j) {
            float* to = out + r * kColumns + j * kLanes;
            Store(to, Fma(Load(to), Set(strip.rescale[r]), c[r][j]));
          }
      });
}

template <bool kCapped>
void ForwardStrips(const ForwardHead& head, const QueryBlock& queries, const uint32_t* panels, int num_panels,
                   const TileMask* tiles, const ForwardScratch& s) {
  const int64_t panel_words = PanelFloats(head.width, head.value_width);
  const float scale = ScoreScale(head);
  Strip strips[2], *strip = &strips[0], *before = &strips[1];
  for (int64_t row = 0; row < queries.num_rows; row += kStripRows, tiles += num_panels) {
    strip->first_row = row;
    strip->num_tiles = 0;
    Vec lane_max[kStripRows];
    for (int r = 0; r < kStripRows; ++r) lane_max[r] = Set(kNegativeInfinity);
    for (int p = 0; p < num_panels; ++p) {
      if (tiles[p].any == 0) continue;
      const uint32_t* keys = panels + p * panel_words;
      TileWeights weights(s, *before, before->num_weighted == before->num_tiles);
      ScoreTile<kCapped>(head, s.q + row * kColumns, keys, tiles[p], s.scores + strip->num_tiles * kPanelKeys,
                         lane_max, weights);
      strip->tiles[strip->num_tiles++] = {keys + kPanelKeys * RowWords(head.width),
                                          LowestBit(tiles[p].any) / 2, (EndBit(tiles[p].any) + 1) / 2};
    }
    if (strip->num_tiles == 0) continue;
    BeginWeights(s, lane_max, scale, *strip);
    if (before->num_tiles > 0) {
      Weigh(s, *before);
      AddValues(head, s, *before);
    }
    Strip* const after = before;
    before = strip;
    strip = after;
  }
  if (before->num_tiles == 0) return;
  Weigh(s, *before);
  AddValues(head, s, *before);
}

void ForwardKeys(const ForwardHead& head, const QueryBlock& queries, const float* panels, int num_panels,
                 const TileMask* tiles, float* scratch) {
  const auto strips = head.soft_cap != 0 ? ForwardStrips<true> : ForwardStrips<false>;
  strips(head, queries, reinterpret_cast<const uint32_t*>(panels), num_panels, tiles,
         ForwardScratch(head, scratch));
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
