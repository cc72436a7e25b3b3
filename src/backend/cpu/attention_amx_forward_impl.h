// The forward kernels on tiles. See attention_amx_impl.h.
//
// A strip of 32 rows goes through the units of keys that it sees, one or two at a time: scores, masked to −∞,
// weights, and after at most kBatch units their product with the values. The maximum that keeps the weights
// in range comes almost for nothing: they are P = 2^(factor · (score − M) − 60), M being some earlier maximum
// of the row. bf16 has f32's exponents, so a row may outgrow its M by 60 binades; one that does shows as P ≥
// 2, bit 14 of a bf16, and so do infinities and NaN. The bits of all weights are gathered as they are stored,
// and only if one has it are the rows looked at, given their new maximum and computed again, while their
// scores and weights are still at hand (Redo). M of a row that has seen nothing is −∞, which makes its
// weights infinite or NaN. A row's bits depend on no number that it does not see, though M is the maximum of
// what it first sees, and where that ends is the strip's; if all scores are equal, weights are exact and so
// is the mean of the values.
#pragma once

#include "backend/cpu/attention_amx_products_impl.h"
#include "backend/cpu/attention_amx_weights_impl.h"

namespace longspan::cpu {
namespace {

constexpr BlockSize kForwardBlock = {512, 16, kUnit};
constexpr int kStrips = kForwardBlock.rows / kUnit;
constexpr int kBatch = 4;  // units of keys whose weights meet the values at once

// The rows of a strip between two phases. Scores are those of q·k, or capped ones.
struct alignas(64) StripRows {
  float max[kUnit];  // M above
  // Sums of the weights of all key blocks before, at the M that was then: lanes start from 0 in each block,
  // or small weights would be lost in sums over a million keys.
  float total[kUnit], total_max[kUnit];
  bool is_fresh;  // no unit seen yet
  int turn;       // which of the two sums holds
};

// Sums of a strip's weights, lane by lane, [turn][row][16]: those with a phase's weights are written beside
// those before.
constexpr int64_t kTurnSums = kUnit * kLanes;

struct ForwardScratch {
  int64_t q_words, out_floats;  // of a strip
  uint32_t* q;                  // [strip][unit of columns][pair], left
  float* out;                   // [strip][unit of columns][32][32], unnormalised
  float* sums;                  // [strip][2 · kTurnSums]
  StripRows* rows;              // [strip]
  uint32_t* weights;            // [2][kBatch][pair], left
  float* scores;                // [2][≤ 2 units][32][32]
  float* unused;                // [32][32], sums of no product
  RowScales* scales;            // [2], as weights
  float* row;                   // [value width in whole units]

  ForwardScratch(const ForwardHead& head, float* scratch)
      : q_words(UnitsOf(head.width) * kPairWords),
        out_floats(UnitsOf(head.value_width) * kSumFloats),
        q(reinterpret_cast<uint32_t*>(scratch)),
        out(scratch + kStrips * q_words),
        sums(out + kStrips * out_floats),
        rows(reinterpret_cast<StripRows*>(sums + kStrips * 2 * kTurnSums)),
        weights(reinterpret_cast<uint32_t*>(rows + kStrips)),
        scores(reinterpret_cast<float*>(weights + 2 * kBatch * kPairWords)),
        unused(scores + 4 * kSumFloats),
        scales(reinterpret_cast<RowScales*>(unused + kSumFloats)),
        row(reinterpret_cast<float*>(scales + 2)) {}
};

int64_t ForwardScratchFloats(int64_t width, int64_t value_width) {
  constexpr int64_t kRowsFloats = sizeof(StripRows) / sizeof(float);
  constexpr int64_t kScalesFloats = sizeof(RowScales) / sizeof(float);
  return kStrips *
             (UnitsOf(width) * kPairWords + UnitsOf(value_width) * kSumFloats + 2 * kTurnSums + kRowsFloats) +
         2 * kBatch * kPairWords + 5 * kSumFloats + 2 * kScalesFloats + UnitsOf(value_width) * kUnit;
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
  s.rows[strip].total_max[r] = s.rows[strip].max[r];
  s.rows[strip].total[r] = head.state_sum.data[row * head.state_sum.stride];
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
      rows.total[r] = 0;
      if (exists && !head.first) LoadStateRow(head, s, strip, r, row);
    }
    PackLeft(q, head.width, flip, s.q + strip * s.q_words);
  }
}

// ------------------------------------------------------------------------------------------------- phases

// Up to kBatch consecutive units of keys that a strip sees.
struct Batch {
  int strip, n;
  int first;              // unit in the key block
  const TileMask* tiles;  // of the strip
};
constexpr int kMostUnits = kForwardBlock.panels * kPanelUnits;
constexpr int kMostBatches = kStrips * kMostUnits / 2;  // a batch ends at a gap at the earliest

int FindBatches(int64_t num_strips, int num_panels, const TileMask* tiles, Batch* batches) {
  int num = 0;
  for (int strip = 0; strip < num_strips; ++strip, tiles += num_panels) {
    int room = 0;  // in the batch before
    for (int unit = 0; unit < num_panels * kPanelUnits; ++unit) {
      if ((tiles[unit / kPanelUnits].any >> (unit % kPanelUnits * kUnit) & 0xffffffffu) == 0) {
        room = 0;
        continue;
      }
      if (room == 0) {
        batches[num++] = {strip, 0, unit, tiles};
        room = kBatch;
      }
      ++batches[num - 1].n;
      --room;
    }
  }
  return num;
}

// All batches of a block, one after another, in phases of kUnits units. A phase makes the scores of its
// units; beside these products the weights of the phase before, kRows rows a step; and a part of the columns
// of the output for the batch whose weights were finished last.
template <int kUnits, int kRows>
class ForwardPhases {
  static constexpr int kPhases = kBatch / kUnits;  // of a batch
  // The first weights of a batch are there before the last products beside its others.
  static_assert(kPhases >= 2);

 public:
  ForwardPhases(const ForwardHead& head, const ForwardScratch& s, const uint32_t* panels,
                const Batch* batches, int num_batches)
      : head_(head), s_(s), panels_(panels), batches_(batches), num_batches_(num_batches) {}

  __attribute__((noinline)) void Run() {
    float* before = s_.unused;
    bool is_loaded = false;  // x's first operands, and x is the product that comes next
    Product x = {};
    for (int phase = 0; phase < (num_batches_ + 1) * kPhases + 1; ++phase) {
      const int units = NumUnits(phase - 1), num = NumProducts(phase), num_next = NumProducts(phase + 1);
      PrepareScores(phase - 1);
      ScaleOut(phase);
      const Rows rows = RowsOf(phase - 1);
      WeightWork<kUnits, kRows> work(units, ScoresOf(phase - 1), factor_, rows.max, rows.before, rows.after,
                                     WeightsOf(phase - 1) + DoneUnits(phase - 1) * kPairWords);
      if (num > 0 && !is_loaded) {
        x = ProductOf(phase, 0);
        LoadOperands(x.left, x.right);
      }
      for (int i = 0; i < num; ++i) {
        const Product next = i + 1 < num    ? ProductOf(phase, i + 1)
                             : num_next > 0 ? ProductOf(phase + 1, 0)
                                            : x;
        RunProduct(x, next, before, work);
        is_loaded = i + 1 < num || num_next > 0;
        before = x.sums;
        x = next;
      }
      // The next phase needs its scores, and sums without a product to store them must not stay.
      if (num > 0 && (num == NumUnits(phase) || num_next == 0)) {
        StoreSums(before);
        before = s_.unused;
      }
      work.Finish();
      if (units > 0 && work.IsAnyTooLarge()) {
        Redo(units, ScoresOf(phase - 1), factor_, rows.max, rows.before, rows.after, WeightsOf(phase - 1),
             DoneUnits(phase - 1), ScalesOf(phase - 1));
        is_loaded = false;  // perhaps weights that have changed
      }
    }
  }

 private:
  bool Exists(int phase) const { return phase >= 0 && phase < num_batches_ * kPhases; }
  const Batch& BatchOf(int phase) const { return batches_[phase / kPhases]; }
  static int DoneUnits(int phase) { return phase % kPhases * kUnits; }
  int NumUnits(int phase) const {
    return Exists(phase) ? static_cast<int>(Bounded(BatchOf(phase).n - DoneUnits(phase), 0, kUnits)) : 0;
  }
  // The phase of scores whose place is now the values'.
  static int ValuePhase(int phase) { return phase - kPhases - 1; }
  // The first column unit of the output that is the phase's.
  int64_t FirstColumn(int phase) const { return phase % kPhases * UnitsOf(head_.value_width) / kPhases; }
  int64_t EndColumn(int phase) const { return (phase % kPhases + 1) * UnitsOf(head_.value_width) / kPhases; }
  int NumProducts(int phase) const {
    const int values = ValuePhase(phase);
    const int64_t columns = Exists(values) ? EndColumn(values) - FirstColumn(values) : 0;
    return NumUnits(phase) + static_cast<int>(columns);
  }

  float* ScoresOf(int phase) const { return s_.scores + (phase & 1) * kUnits * kSumFloats; }
  uint32_t* WeightsOf(int phase) const { return s_.weights + (phase / kPhases & 1) * kBatch * kPairWords; }
  RowScales* ScalesOf(int phase) const { return &s_.scales[phase / kPhases & 1]; }

  Product ProductOf(int phase, int i) const {
    const int64_t unit_words = KeyUnitWords(head_.width, head_.value_width);
    if (i < NumUnits(phase)) {
      const Batch& batch = BatchOf(phase);
      const uint32_t* keys = panels_ + (batch.first + DoneUnits(phase) + i) * unit_words;
      return {s_.q + batch.strip * s_.q_words,        keys, kPairWords, ScoresOf(phase) + i * kSumFloats,
              static_cast<int>(UnitsOf(head_.width)), false};
    }
    const int values = ValuePhase(phase);
    const Batch& batch = BatchOf(values);
    const int64_t column = FirstColumn(values) + i - NumUnits(phase);
    const uint32_t* right = panels_ + batch.first * unit_words + (UnitsOf(head_.width) + column) * kPairWords;
    return {WeightsOf(values), right, unit_words, s_.out + batch.strip * s_.out_floats + column * kSumFloats,
            batch.n,           true};
  }

  // Whatever scores need before they become weights.
  void PrepareScores(int phase) const {
    const int units = NumUnits(phase);
    if (units == 0) return;
    const Batch& batch = BatchOf(phase);
    StripRows& rows = s_.rows[batch.strip];
    float* const scores = ScoresOf(phase);
    if (head_.soft_cap != 0) CapScores(Magnitude(head_.scale), head_.soft_cap, units * kSumFloats, scores);
    for (int i = 0; i < units; ++i) {
      const int unit = batch.first + DoneUnits(phase) + i;
      const uint64_t* const seen = batch.tiles[unit / kPanelUnits].rows;
      if (seen != nullptr) HideScores(seen, unit % kPanelUnits * kUnit, scores + i * kSumFloats);
    }
    if (rows.is_fresh) LargestScores(scores, units, rows.max);
    rows.is_fresh = false;
    rows.turn ^= 1;
    if (DoneUnits(phase) == 0) ScalesOf(phase)->Clear();
  }

  struct Rows {
    float* max;
    const float* before;
    float* after;
  };
  Rows RowsOf(int phase) const {
    if (NumUnits(phase) == 0) return {nullptr, nullptr, nullptr};
    const int64_t strip = BatchOf(phase).strip, turn = s_.rows[strip].turn;
    float* const sums = s_.sums + strip * 2 * kTurnSums;
    return {s_.rows[strip].max, sums + (turn ^ 1) * kTurnSums, sums + turn * kTurnSums};
  }

  // The output that rows with a new maximum have so far, in the phase's columns.
  void ScaleOut(int phase) const {
    const int values = ValuePhase(phase);
    if (!Exists(values) || !ScalesOf(values)->any) return;
    float* const out = s_.out + BatchOf(values).strip * s_.out_floats;
    for (int64_t column = FirstColumn(values); column < EndColumn(values); ++column)
      for (int64_t i = 0; i < kSumFloats; i += kLanes) {
        float* const to = out + column * kSumFloats + i;
        Store(to, Mul(Load(to), Set(ScalesOf(values)->scale[i / kSumRow])));
      }
  }

  const ForwardHead& head_;
  const ForwardScratch& s_;
  const uint32_t* const panels_;
  const Batch* const batches_;
  const int num_batches_;
  const float factor_ = FactorOf(Magnitude(head_.scale), head_.soft_cap);
};

// The sums of a key block's weights to those of all before it.
void AddToTotals(const ForwardHead& head, const ForwardScratch& s, int64_t strip) {
  const float factor = FactorOf(Magnitude(head.scale), head.soft_cap);
  StripRows& rows = s.rows[strip];
  float* const sums = s.sums + (strip * 2 + rows.turn) * kTurnSums;
  for (int64_t r = 0; r < kUnit; ++r) {
    const bool has_grown = rows.total[r] != 0 && rows.total_max[r] != rows.max[r];
    const float scale = has_grown ? ScalarExp2((rows.total_max[r] - rows.max[r]) * factor) : 1;
    rows.total[r] = rows.total[r] * scale + SumOf(Load(sums + r * kLanes));
    rows.total_max[r] = rows.max[r];
  }
  ClearFloats(kTurnSums, sums);
}

// Units and rows are such that the weights of a phase just fit beside its products at widths of 64, 128 and
// 256.
void ForwardKeys(const ForwardHead& head, const QueryBlock& queries, const float* panels, int num_panels,
                 const TileMask* tiles, float* scratch) {
  const FlushDenormals flush;
  const TilesInUse in_use;
  const ForwardScratch s(head, scratch);
  const auto* const words = reinterpret_cast<const uint32_t*>(panels);
  Batch batches[kMostBatches];
  const int num = FindBatches(UnitsOf(queries.num_rows), num_panels, tiles, batches);
  if (UnitsOf(head.width) + UnitsOf(head.value_width) <= 5) {
    ForwardPhases<2, 8>(head, s, words, batches, num).Run();
  } else if (UnitsOf(head.width) + UnitsOf(head.value_width) <= 12) {
    ForwardPhases<1, 4>(head, s, words, batches, num).Run();
  } else {
    ForwardPhases<1, 2>(head, s, words, batches, num).Run();
  }
  for (int64_t strip = 0; strip < UnitsOf(queries.num_rows); ++strip) AddToTotals(head, s, strip);
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
    const float sum = rows.total[r];
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
