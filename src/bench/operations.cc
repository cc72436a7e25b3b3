#include "bench/operations.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "bench/measure.h"

namespace longspan::bench {
namespace {

constexpr int64_t kChunk = 1024, kLossChunk = 256;  // rows: the keys' defaults
constexpr int64_t kRows = 8192;                     // of a rank
constexpr int64_t kWidth = 768, kInner = 2048, kHeads = 6, kHeadDim = 128, kVocabulary = 8192;
constexpr int64_t kParameters = int64_t{4} << 20;
constexpr DType kF32 = DType::kFloat32;

Buffer Ids(int64_t rows) {
  Buffer ids(DType::kInt32, {rows});
  for (int64_t i = 0; i < rows; ++i)
    ids.tensor().data<int32_t>()[i] = static_cast<int32_t>(i * 7919 % kVocabulary);
  return ids;
}

// Random numbers, of which some repeat: what is timed does not look at more than one.
Buffer Numbers(std::string_view name, DType dtype, std::initializer_list<int64_t> shape) {
  constexpr int64_t kDifferent = 1 << 14;
  const Buffer some = RandomBuffer(name, dtype, {kDifferent});
  Buffer all(dtype, shape);
  for (int64_t at = 0; at < all.num_bytes(); at += some.num_bytes())
    std::memcpy(static_cast<char*>(all.data()) + at, some.data(),
                static_cast<size_t>(std::min(some.num_bytes(), all.num_bytes() - at)));
  return all;
}

struct Operands {
  explicit Operands(DType d)
      : x(Numbers("x", d, {kChunk, kWidth})),
        y(Numbers("y", d, {kChunk, kWidth})),
        sum(Numbers("sum", d, {kChunk, kWidth})),
        wide(Numbers("wide", kF32, {kChunk, kWidth})),
        gain(Numbers("gain", d, {kWidth})),
        gain_gradient(kF32, {kWidth}),
        gate(Numbers("gate", d, {kChunk, kInner})),
        up(Numbers("up", d, {kChunk, kInner})),
        act(Numbers("act", d, {kChunk, kInner})),
        gate_gradient(d, {kChunk, kInner}),
        up_gradient(d, {kChunk, kInner}),
        rows(d, {kRows, kHeads, kHeadDim}),
        other_rows(d, {kRows, kHeads, kHeadDim}),
        wide_rows(kF32, {kRows, kHeads, kHeadDim}),
        per_head(kF32, {kRows, kHeads}),
        mean(kF32, {kHeads, kHeadDim}),
        positions(DType::kInt64, {kChunk}),
        coarse(kF32, {1, kHeadDim / 2, 2}),
        fine(kF32, {RopeTables::kPeriod, kHeadDim / 2, 2}),
        ids(Ids(kRows)),
        table(d, {kVocabulary, kWidth}),
        table_gradient(kF32, {kVocabulary, kWidth}),
        logits(Numbers("logits", kF32, {kLossChunk, kVocabulary})),
        logits_gradient(Numbers("dlogits", d, {kLossChunk, kVocabulary})),
        weights(Numbers("weights", kF32, {kParameters})),
        gradient(Numbers("gradient", kF32, {kParameters})),
        exp_avg(kF32, {kParameters}),
        exp_avg_sq(kF32, {kParameters}),
        compute(d == kF32 ? Buffer() : Buffer(d, {kParameters})),
        squares(Backend::NormBlocks(kParameters) * int64_t{sizeof(double)}),
        span{0, kRows} {}

  Norm norm() const { return {.weight = gain.tensor()}; }
  Tensor few_ids() const { return ids.tensor().Rows(0, kLossChunk); }
  Tensor flat(const Buffer& x_rows) const { return x_rows.tensor().Reshape({kRows, kHeads * kHeadDim}); }

  Buffer x, y, sum, wide, gain, gain_gradient, gate, up, act, gate_gradient, up_gradient;
  Buffer rows, other_rows, wide_rows, per_head, mean, positions, coarse, fine, ids, table, table_gradient;
  Buffer logits, logits_gradient, weights, gradient, exp_avg, exp_avg_sq, compute, squares;
  Buffer matrix, packed;  // of a weight, where the backend packs it
  Range span;
};

}  // namespace

std::vector<Operation> OtherOperations(DType dtype, Backend& backend) {
  const auto made = std::make_shared<Operands>(dtype);
  made->matrix = Numbers("matrix", dtype, {kWidth, kInner});
  made->packed = Buffer(backend.PackedBytes(made->matrix.tensor()));
  const std::shared_ptr<const Operands> o = made;
  constexpr GateActivation kSilu = GateActivation::kSilu;
  const float cap = 30;
  std::vector<Operation> operations = {
      [o](Backend& b) { b.Copy(o->rows.tensor(), o->other_rows.tensor()); },
      [o](Backend& b) { b.Add(o->x.tensor(), o->sum.tensor()); },
      [o](Backend& b) { b.Scale(1, o->x.tensor()); },
      [o](Backend& b) { b.CopyHeads(o->rows.tensor(), 0, o->other_rows.tensor(), 3, 3); },
      [o](Backend& b) { b.AddHeads(o->rows.tensor(), 0, o->other_rows.tensor(), 3, 3); },
      [o](Backend& b) { b.Embedding(o->ids.tensor(), o->table.tensor(), o->flat(o->other_rows)); },
      [o](Backend& b) {
        b.EmbeddingBackward(o->ids.tensor(), o->flat(o->rows), -1, o->table_gradient.tensor());
      },
      [o](Backend& b) { b.AddBias(o->gain.tensor(), o->y.tensor()); },
      [o](Backend& b) { b.AddBiasBackward(o->y.tensor(), o->gain_gradient.tensor()); },
      [o](Backend& b) { b.RmsNorm(o->x.tensor(), o->norm(), o->y.tensor()); },
      [o](Backend& b) { b.AddRmsNorm(o->x.tensor(), o->sum.tensor(), o->norm(), o->y.tensor()); },
      [o](Backend& b) {
        b.RmsNormBackward(o->x.tensor(), o->norm(), o->wide.tensor(), o->sum.tensor(),
                          o->gain_gradient.tensor(), true);
      },
      [o](Backend& b) {
        b.Rope(o->y.tensor().Reshape({kChunk, kHeads, kHeadDim}), o->positions.tensor(),
               {.coarse = o->coarse.tensor(), .fine = o->fine.tensor()}, false);
      },
      [o](Backend& b) { b.Glu(kSilu, o->gate.tensor(), o->up.tensor(), o->act.tensor()); },
      [o](Backend& b) {
        b.GluBackward(kSilu, o->gate.tensor(), o->up.tensor(), o->act.tensor(), o->gate_gradient.tensor(),
                      o->up_gradient.tensor());
      },
      [o](Backend& b) { b.AttentionDelta(o->rows.tensor(), o->other_rows.tensor(), o->per_head.tensor()); },
      [o](Backend& b) {
        b.MeanOfRows(o->rows.tensor(), {&o->span, 1}, kRows, o->mean.tensor());
      },
      [o, cap](Backend& b) { b.SoftCapBackward(o->logits.tensor(), cap, o->logits_gradient.tensor()); },
      [o](Backend& b) {
        b.CrossEntropyBackward(o->logits.tensor(), o->few_ids(), 1, o->logits_gradient.tensor());
      },
      [o](Backend& b) {
        b.AdamW({}, o->gradient.tensor(), o->weights.tensor(), o->exp_avg.tensor(), o->exp_avg_sq.tensor(),
                o->compute.tensor());
      },
      [o](Backend& b) { b.Sgd(0, 1, o->gradient.tensor(), o->weights.tensor(), o->compute.tensor()); },
  };
  if (made->packed.num_bytes() > 0)
    operations.push_back([o](Backend& b) { b.Pack(o->matrix.tensor(), o->packed.tensor()); });
  if (dtype != kF32) return operations;
  // Of float32 whatever the dtype of a model.
  for (const Operation& operation : std::initializer_list<Operation>{
           [o](Backend& b) { b.Zero(o->wide_rows.tensor()); },
           [o](Backend& b) {
             const Tensor rounded(o->rows.tensor().raw(), DType::kBFloat16, {kRows, kHeads, kHeadDim});
             b.Cast(o->wide_rows.tensor(), rounded);
           },
           [o, cap](Backend& b) { b.SoftCap(cap, o->logits.tensor()); },
           [o](Backend& b) { b.CrossEntropy(o->logits.tensor(), o->few_ids()); },
           [o](Backend& b) { b.SumsOfSquares(o->gradient.tensor(), o->squares.tensor()); }})
    operations.push_back(operation);
  return operations;
}

Operation SmallestOperation() {
  constexpr int64_t kFew = 128;  // rows
  struct Few {
    Buffer x{kF32, {kFew, 1, 2}}, positions{DType::kInt64, {kFew}}, coarse{kF32, {1, 1, 2}},
        fine{kF32, {RopeTables::kPeriod, 1, 2}};
  };
  const auto o = std::make_shared<const Few>();
  return [o](Backend& b) {
    b.Rope(o->x.tensor(), o->positions.tensor(), {.coarse = o->coarse.tensor(), .fine = o->fine.tensor()},
           false);
  };
}

}  // namespace longspan::bench
