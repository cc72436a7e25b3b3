#include "backend/shapes.h"

#include <algorithm>
#include <cmath>

namespace longspan::shapes {
namespace {

bool SameShape(const Tensor& a, const Tensor& b) { return std::ranges::equal(a.shape(), b.shape()); }
bool SameTensor(const Tensor& a, const Tensor& b) { return a.dtype() == b.dtype() && SameShape(a, b); }
bool IsF32(const Tensor& x) { return x.dtype() == DType::kFloat32; }
bool IsShaped(const Tensor& x, DType dtype, std::initializer_list<int64_t> shape) {
  return x.dtype() == dtype && std::ranges::equal(x.shape(), shape);
}

int64_t TotalSize(std::span<const Range> spans) {
  int64_t size = 0;
  for (const Range& span : spans) size += span.size();
  return size;
}

void CheckAttentionInputs(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  CHECK(call.mask != nullptr);
  CHECK(q.rank() == 3 && k.rank() == 3 && v.rank() == 3);
  CHECK(IsFloat(q) && k.dtype() == q.dtype() && v.dtype() == q.dtype());
  CHECK(k.dim(2) == q.dim(2) && v.dim(0) == k.dim(0) && v.dim(1) == k.dim(1));
  CHECK(TotalSize(call.query_spans) == q.dim(0) && TotalSize(call.key_spans) == k.dim(0));
  CHECK(static_cast<int64_t>(call.kv_of.size()) == q.dim(1));
  for (const int32_t kv : call.kv_of) CHECK(kv >= 0 && kv < k.dim(1));
  CHECK(call.soft_cap == 0 || (call.soft_cap > 0 && std::isnormal(call.soft_cap)));
  CHECK(call.sinks.IsNull() || IsShaped(call.sinks, DType::kFloat32, {q.dim(1)}));
  if (!call.key_mean.IsNull()) {
    CHECK(IsShaped(call.key_mean, DType::kFloat32, {k.dim(1), k.dim(2)}));
    CHECK(call.soft_cap == 0 && call.sinks.IsNull());
  }
}

}  // namespace

bool IsFloat(const Tensor& x) { return x.dtype() == DType::kFloat32 || x.dtype() == DType::kBFloat16; }

MatmulSizes CheckMatmul(const MatmulArgs& args) {
  const auto& [a, b, c, transpose_a, transpose_b, accumulate, packed_b] = args;
  CHECK(a.rank() == 2 && b.rank() == 2 && c.rank() == 2);
  CHECK(IsFloat(a) && b.dtype() == a.dtype());
  CHECK(IsF32(c) || (c.dtype() == a.dtype() && !accumulate));
  const MatmulSizes sizes{c.dim(0), c.dim(1), a.dim(transpose_a ? 0 : 1)};
  CHECK(a.dim(transpose_a ? 1 : 0) == sizes.m);
  CHECK(b.dim(transpose_b ? 1 : 0) == sizes.k && b.dim(transpose_b ? 0 : 1) == sizes.n);
  CHECK(packed_b.IsNull() || packed_b.dtype() == DType::kByte);
  return sizes;
}

double MatmulFlops(const MatmulArgs& args) {
  const auto [m, n, k] = CheckMatmul(args);
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

void CheckCopy(const Tensor& src, const Tensor& dst) {
  CHECK(src.dtype() == dst.dtype() && src.num_elements() == dst.num_elements());
}

void CheckCast(const Tensor& src, const Tensor& dst) {
  CHECK(src.num_elements() == dst.num_elements());
  CHECK(src.dtype() == dst.dtype() || (IsFloat(src) && IsFloat(dst)));
}

void CheckAdd(const Tensor& x, const Tensor& y) {
  CHECK(IsFloat(x) && x.dtype() == y.dtype() && x.num_elements() == y.num_elements());
}

void CheckHeads(const Tensor& src, int64_t src_head, const Tensor& dst, int64_t dst_head, int64_t n) {
  CHECK(src.rank() == 3 && dst.rank() == 3 && IsFloat(src) && src.dtype() == dst.dtype());
  CHECK(src.dim(0) == dst.dim(0) && src.dim(2) == dst.dim(2));
  CHECK(n >= 0 && src_head >= 0 && src_head + n <= src.dim(1) && dst_head >= 0 && dst_head + n <= dst.dim(1));
}

void CheckEmbedding(const Tensor& tokens, const Tensor& table, const Tensor& out) {
  CHECK(table.rank() == 2 && IsFloat(table));
  CHECK(IsShaped(tokens, DType::kInt32, {out.dim(0)}));
  CHECK(IsShaped(out, table.dtype(), {out.dim(0), table.dim(1)}));
}

void CheckEmbeddingBackward(const Tensor& tokens, const Tensor& dout, const Tensor& dtable) {
  CHECK(dout.rank() == 2 && IsFloat(dout));
  CHECK(IsShaped(tokens, DType::kInt32, {dout.dim(0)}));
  CHECK(IsShaped(dtable, DType::kFloat32, {dtable.dim(0), dout.dim(1)}));
}

RowSizes RowsOf(const Tensor& x) {
  CHECK(x.rank() >= 1);
  const int64_t width = x.dim(x.rank() - 1);
  return {width == 0 ? 0 : x.num_elements() / width, width};
}

void CheckAddBias(const Tensor& bias, const Tensor& y) {
  CHECK(IsFloat(y) && IsShaped(bias, y.dtype(), {RowsOf(y).width}));
}

void CheckAddBiasBackward(const Tensor& dy, const Tensor& dbias) {
  CHECK(IsFloat(dy) && IsShaped(dbias, DType::kFloat32, {RowsOf(dy).width}));
}

RowSizes CheckRmsNorm(const Tensor& x, const Norm& norm, const Tensor& y) {
  const RowSizes sizes = RowsOf(x);
  CHECK(IsFloat(x) && SameTensor(x, y) && IsShaped(norm.weight, x.dtype(), {sizes.width}));
  return sizes;
}

RowSizes CheckAddRmsNorm(const Tensor& x, const Tensor& sum, const Norm& norm, const Tensor& y) {
  CHECK(SameTensor(x, sum));
  return CheckRmsNorm(x, norm, y);
}

RowSizes CheckRmsNormBackward(const Tensor& x, const Norm& norm, const Tensor& dy, const Tensor& dx,
                              const Tensor& dweight) {
  const RowSizes sizes = CheckRmsNorm(x, norm, dx);
  CHECK(IsF32(dy) && SameShape(x, dy) && IsShaped(dweight, DType::kFloat32, {sizes.width}));
  return sizes;
}

void CheckRope(const Tensor& x, const Tensor& positions, const RopeTables& tables) {
  CHECK(x.rank() == 3 && IsFloat(x) && tables.fine.rank() == 3);
  CHECK(IsShaped(positions, DType::kInt64, {x.dim(0)}));
  const int64_t pairs = tables.fine.dim(1);
  CHECK(2 * pairs <= x.dim(2));
  CHECK(IsShaped(tables.coarse, DType::kFloat32, {tables.coarse.dim(0), pairs, 2}));
  CHECK(IsShaped(tables.fine, DType::kFloat32, {RopeTables::kPeriod, pairs, 2}));
}

void CheckGlu(const Tensor& gate, const Tensor& up, const Tensor& out) {
  CHECK(IsFloat(gate) && SameTensor(gate, up) && SameTensor(gate, out));
}

void CheckGluBackward(const Tensor& gate, const Tensor& up, const Tensor& dout, const Tensor& dgate,
                      const Tensor& dup) {
  CheckGlu(gate, up, dout);
  CHECK(SameTensor(gate, dgate) && SameTensor(gate, dup));
}

void CheckAttentionForward(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v,
                           bool first, bool last, const AttentionState& state, const Tensor& out,
                           const Tensor& lse) {
  CheckAttentionInputs(call, q, k, v);
  const int64_t rows = q.dim(0), heads = q.dim(1);
  if (last) {
    CHECK(IsShaped(out, q.dtype(), {rows, heads, v.dim(2)}) && IsShaped(lse, DType::kFloat32, {rows, heads}));
  }
  if (!first || !last) {
    CHECK(IsShaped(state.out, DType::kFloat32, {rows, heads, v.dim(2)}));
    CHECK(IsShaped(state.max, DType::kFloat32, {rows, heads}));
    CHECK(IsShaped(state.sum, DType::kFloat32, {rows, heads}));
  }
}

void CheckAttentionDelta(const Tensor& out, const Tensor& dout, const Tensor& delta) {
  CHECK(out.rank() == 3 && IsFloat(out) && SameTensor(out, dout));
  CHECK(IsShaped(delta, DType::kFloat32, {out.dim(0), out.dim(1)}));
}

void CheckAttentionSinksBackward(const Tensor& sinks, const Tensor& lse, const Tensor& delta,
                                 const Tensor& dsinks) {
  CHECK(lse.rank() == 2 && IsF32(lse) && SameTensor(lse, delta));
  CHECK(IsShaped(sinks, DType::kFloat32, {lse.dim(1)}) && SameTensor(sinks, dsinks));
}

void CheckMeanOfRows(const Tensor& x, std::span<const Range> rows, int64_t num_rows, const Tensor& mean) {
  CHECK(x.rank() == 3 && IsFloat(x) && IsShaped(mean, DType::kFloat32, {x.dim(1), x.dim(2)}));
  for (const Range& range : rows) CHECK(range.empty() || (range.begin >= 0 && range.end <= x.dim(0)));
  CHECK(TotalSize(rows) <= num_rows);
}

void CheckAttentionBackward(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& dout, const Tensor& lse, const Tensor& delta, const Tensor& dq,
                            const Tensor& dk, const Tensor& dv) {
  CheckAttentionInputs(call, q, k, v);
  const int64_t rows = q.dim(0), heads = q.dim(1);
  CHECK(IsShaped(dout, q.dtype(), {rows, heads, v.dim(2)}));
  CHECK(IsShaped(lse, DType::kFloat32, {rows, heads}) && IsShaped(delta, DType::kFloat32, {rows, heads}));
  CHECK(IsF32(dq) && SameShape(dq, q) && IsF32(dk) && SameShape(dk, k) && IsF32(dv) && SameShape(dv, v));
}

void CheckSoftCap(float cap, const Tensor& logits) { CHECK(IsF32(logits) && cap > 0 && std::isnormal(cap)); }

void CheckSoftCapBackward(const Tensor& capped, float cap, const Tensor& dlogits) {
  CheckSoftCap(cap, capped);
  CHECK(IsFloat(dlogits) && SameShape(dlogits, capped));
}

void CheckCrossEntropy(const Tensor& logits, const Tensor& targets) {
  CHECK(logits.rank() == 2 && IsF32(logits) && IsShaped(targets, DType::kInt32, {logits.dim(0)}));
}

void CheckTokenLosses(const Tensor& logits, const Tensor& targets, const Tensor& losses,
                      const Tensor& argmax) {
  CheckCrossEntropy(logits, targets);
  CHECK(IsShaped(losses, DType::kFloat32, {logits.dim(0)}) &&
        IsShaped(argmax, DType::kInt32, {logits.dim(0)}));
}

void CheckCrossEntropyBackward(const Tensor& logits, const Tensor& targets, const Tensor& dlogits) {
  CheckCrossEntropy(logits, targets);
  CHECK(IsFloat(dlogits) && SameShape(dlogits, logits));
}

void CheckSumsOfSquares(const Tensor& x, const Tensor& sums) {
  CHECK(IsF32(x));
  CHECK(sums.num_bytes() == Backend::NormBlocks(x.num_elements()) * int64_t{sizeof(double)});
}

void CheckSgd(const Tensor& grad, const Tensor& master, const Tensor& compute) {
  CHECK(IsF32(grad) && IsF32(master) && grad.num_elements() == master.num_elements());
  CHECK(compute.IsNull() ||
        (compute.dtype() == DType::kBFloat16 && compute.num_elements() == master.num_elements()));
}

void CheckAdamW(const AdamWArgs& args, const Tensor& grad, const Tensor& master, const Tensor& exp_avg,
                const Tensor& exp_avg_sq, const Tensor& compute) {
  CheckSgd(grad, master, compute);
  CHECK(IsF32(exp_avg) && exp_avg.num_elements() == master.num_elements());
  CHECK(IsF32(exp_avg_sq) && exp_avg_sq.num_elements() == master.num_elements());
  CHECK(args.step >= 1);
}

}  // namespace longspan::shapes
