#include "backend/dry_backend.h"

#include <algorithm>

#include "backend/shapes.h"

namespace longspan {
namespace {

double Doubles(int64_t x) { return static_cast<double>(x); }

// Shape and size of a call of attention; its products are counted by the caller.
Work AttentionWork(WorkKind kind, const AttentionCall& call, Tensor q, Tensor k, Tensor v, int64_t pairs) {
  Work work;
  work.kind = kind;
  work.name = kind == WorkKind::kAttentionForward ? "attention" : "attention backward";
  work.dtype = q.dtype();
  work.pairs = pairs;
  work.rows = q.dim(0);
  work.keys = k.dim(0);
  work.heads = static_cast<int64_t>(call.kv_of.size());
  work.width = q.dim(2);
  work.bytes = q.num_bytes() + k.num_bytes() + v.num_bytes();
  return work;
}

}  // namespace

void DryBackend::CountTimes(int64_t times) {
  CHECK(times >= 1);
  times_ = times;
}

void DryBackend::TakeWorkspace(std::string_view name, int64_t bytes) {
  const Arena::Scope scope(arena());
  arena().Allocate(name, DType::kByte, {bytes});
}

void DryBackend::Report(Work work) {
  if (recorder() == nullptr) return;
  work.times = times_;
  recorder()->Compute(work);
}

void DryBackend::Touch(std::string_view name, std::initializer_list<Tensor> tensors) {
  Work work;
  work.name = name;
  for (const Tensor& tensor : tensors) work.bytes += tensor.num_bytes();
  const auto first = std::ranges::find_if(tensors, shapes::IsFloat);
  if (first != tensors.end()) work.dtype = first->dtype();
  Report(work);
}

void DryBackend::Zero(Tensor x) { Touch("zero", {x}); }

void DryBackend::Copy(Tensor src, Tensor dst) {
  shapes::CheckCopy(src, dst);
  Touch("copy", {src, dst});
}

void DryBackend::Cast(Tensor src, Tensor dst) {
  shapes::CheckCast(src, dst);
  Touch("cast", {src, dst});
}

void DryBackend::Add(Tensor x, Tensor y) {
  shapes::CheckAdd(x, y);
  Touch("add", {x, y, y});
}

void DryBackend::Scale(float, Tensor x) {
  CHECK(shapes::IsFloat(x));
  Touch("scale", {x, x});
}

void DryBackend::CopyHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) {
  shapes::CheckHeads(src, src_head, dst, dst_head, n);
  const Tensor heads(src.raw(), src.dtype(), {src.dim(0), n, src.dim(2)});
  Touch("copy heads", {heads, heads});
}

void DryBackend::AddHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) {
  shapes::CheckHeads(src, src_head, dst, dst_head, n);
  const Tensor heads(src.raw(), src.dtype(), {src.dim(0), n, src.dim(2)});
  Touch("add heads", {heads, heads, heads});
}

void DryBackend::Matmul(const MatmulArgs& args) {
  Work work;
  work.kind = WorkKind::kMatmul;
  work.name = "matmul";
  work.dtype = args.a.dtype();
  work.product = args.transpose_a   ? ProductKind::kWeightGradient
                 : args.transpose_b ? ProductKind::kForward
                                    : ProductKind::kInputGradient;
  work.flops = shapes::MatmulFlops(args);
  work.bytes = args.a.num_bytes() + args.b.num_bytes() + args.c.num_bytes() * (args.accumulate ? 2 : 1);
  matmul_flops_ += Doubles(times_) * work.flops;
  Report(work);
}

void DryBackend::Pack(Tensor matrix, Tensor packed) {
  CHECK(packed.num_bytes() == PackedBytes(matrix));
  Touch("pack", {matrix, packed});
}

void DryBackend::Embedding(Tensor tokens, Tensor table, Tensor out) {
  shapes::CheckEmbedding(tokens, table, out);
  Touch("embedding", {tokens, out, out});
}

void DryBackend::EmbeddingBackward(Tensor tokens, Tensor dout, int64_t, Tensor dtable) {
  shapes::CheckEmbeddingBackward(tokens, dout, dtable);
  const Tensor rows(dtable.raw(), DType::kFloat32, dout.shape());  // of the table: read and written
  Touch("embedding backward", {tokens, dout, rows, rows});
}

void DryBackend::AddBias(Tensor bias, Tensor y) {
  shapes::CheckAddBias(bias, y);
  Touch("bias", {y, y});
}

void DryBackend::AddBiasBackward(Tensor dy, Tensor dbias) {
  shapes::CheckAddBiasBackward(dy, dbias);
  Touch("bias backward", {dy});
}

void DryBackend::RmsNorm(Tensor x, const Norm& norm, Tensor y) {
  shapes::CheckRmsNorm(x, norm, y);
  Touch("norm", {x, y});
}

void DryBackend::AddRmsNorm(Tensor x, Tensor sum, const Norm& norm, Tensor y) {
  shapes::CheckAddRmsNorm(x, sum, norm, y);
  Touch("add norm", {x, sum, sum, y});
}

void DryBackend::RmsNormBackward(Tensor x, const Norm& norm, Tensor dy, Tensor dx, Tensor dweight,
                                 bool accumulate) {
  shapes::CheckRmsNormBackward(x, norm, dy, dx, dweight);
  if (accumulate) {
    Touch("norm backward", {x, dy, dx, dx});
  } else {
    Touch("norm backward", {x, dy, dx});
  }
}

void DryBackend::Rope(Tensor x, Tensor positions, const RopeTables& tables, bool) {
  shapes::CheckRope(x, positions, tables);
  Touch("rope", {x, x});
}

void DryBackend::Glu(GateActivation, Tensor gate, Tensor up, Tensor out) {
  shapes::CheckGlu(gate, up, out);
  Touch("glu", {gate, up, out});
}

void DryBackend::GluBackward(GateActivation, Tensor gate, Tensor up, Tensor dout, Tensor dgate, Tensor dup) {
  shapes::CheckGluBackward(gate, up, dout, dgate, dup);
  Touch("glu backward", {gate, up, dout, dgate, dup});
}

void DryBackend::AttentionForward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, bool first,
                                  bool last, const AttentionState& state, Tensor out, Tensor lse) {
  shapes::CheckAttentionForward(call, q, k, v, first, last, state, out, lse);
  if (recorder() == nullptr) return;
  const int64_t pairs = pair_counts_.Count(*call.mask, call.query_spans, call.key_spans);
  Work work = AttentionWork(WorkKind::kAttentionForward, call, q, k, v, pairs);
  work.flops = 2.0 * Doubles(pairs) * Doubles(work.heads) * Doubles(q.dim(2) + v.dim(2));
  const int64_t state_bytes = state.out.num_bytes() + state.max.num_bytes() + state.sum.num_bytes();
  work.state_bytes = (first ? 0 : state_bytes) + (last ? 0 : state_bytes);
  work.bytes += work.state_bytes + (last ? out.num_bytes() + lse.num_bytes() : 0);
  Report(work);
}

void DryBackend::AttentionDelta(Tensor out, Tensor dout, Tensor delta) {
  shapes::CheckAttentionDelta(out, dout, delta);
  Touch("attention delta", {out, dout, delta});
}

void DryBackend::AttentionSinksBackward(Tensor sinks, Tensor lse, Tensor delta, Tensor dsinks) {
  shapes::CheckAttentionSinksBackward(sinks, lse, delta, dsinks);
  Touch("attention sinks", {lse, delta});
}

void DryBackend::MeanOfRows(Tensor x, std::span<const Range> rows, int64_t num_rows, Tensor mean) {
  shapes::CheckMeanOfRows(x, rows, num_rows, mean);
  Touch("mean", {x});
}

void DryBackend::AttentionBackward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, Tensor dout,
                                   Tensor lse, Tensor delta, Tensor dq, Tensor dk, Tensor dv) {
  shapes::CheckAttentionBackward(call, q, k, v, dout, lse, delta, dq, dk, dv);
  if (recorder() == nullptr) return;
  const int64_t pairs = pair_counts_.Count(*call.mask, call.query_spans, call.key_spans);
  Work work = AttentionWork(WorkKind::kAttentionBackward, call, q, k, v, pairs);
  // Scores again, dQ and dK of the width of q and k; dP and dV of that of v.
  work.flops = 2.0 * Doubles(pairs) * Doubles(work.heads) * Doubles(3 * q.dim(2) + 2 * v.dim(2));
  work.state_bytes = 2 * (dq.num_bytes() + dk.num_bytes() + dv.num_bytes());
  work.bytes += work.state_bytes + dout.num_bytes() + lse.num_bytes() + delta.num_bytes();
  Report(work);
}

void DryBackend::SoftCap(float cap, Tensor logits) {
  shapes::CheckSoftCap(cap, logits);
  Touch("soft cap", {logits, logits});
}

void DryBackend::SoftCapBackward(Tensor capped, float cap, Tensor dlogits) {
  shapes::CheckSoftCapBackward(capped, cap, dlogits);
  Touch("soft cap backward", {dlogits, dlogits, capped});
}

double DryBackend::CrossEntropy(Tensor logits, Tensor targets) {
  shapes::CheckCrossEntropy(logits, targets);
  Touch("loss", {logits});
  return 0;
}

void DryBackend::TokenLosses(Tensor logits, Tensor targets, Tensor losses, Tensor argmax) {
  shapes::CheckTokenLosses(logits, targets, losses, argmax);
  Touch("loss", {logits});
}

double DryBackend::CrossEntropyBackward(Tensor logits, Tensor targets, float, Tensor dlogits) {
  shapes::CheckCrossEntropyBackward(logits, targets, dlogits);
  Touch("loss backward", {dlogits, logits, logits});
  return 0;
}

void DryBackend::SumsOfSquares(Tensor x, Tensor sums) {
  shapes::CheckSumsOfSquares(x, sums);
  Touch("gradient norm", {x});
}

void DryBackend::AdamW(const AdamWArgs& args, Tensor grad, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
                       Tensor compute) {
  shapes::CheckAdamW(args, grad, master, exp_avg, exp_avg_sq, compute);
  Touch("adamw", {compute, grad, master, master, exp_avg, exp_avg, exp_avg_sq, exp_avg_sq});
}

void DryBackend::Sgd(double, double, Tensor grad, Tensor master, Tensor compute) {
  shapes::CheckSgd(grad, master, compute);
  Touch("sgd", {compute, grad, master, master});
}

std::unique_ptr<Backend> MakeDryAccelerator(WorkRecorder* recorder) {
  return std::make_unique<DryBackend>(recorder);
}

}  // namespace longspan
