// What the operations of a backend ask of their operands' shapes and dtypes (backend.h says it in words).
// Every backend calls these first, so that a dry run fails where a real one would. All are CHECKs: a wrong
// shape is ours.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace longspan::shapes {

bool IsFloat(const Tensor& x);  // f32 or bf16

struct MatmulSizes {
  int64_t m, n, k;
};
MatmulSizes CheckMatmul(const MatmulArgs& args);
double MatmulFlops(const MatmulArgs& args);  // 2·m·n·k

void CheckCopy(const Tensor& src, const Tensor& dst);
void CheckCast(const Tensor& src, const Tensor& dst);
void CheckAdd(const Tensor& x, const Tensor& y);
void CheckHeads(const Tensor& src, int64_t src_head, const Tensor& dst, int64_t dst_head, int64_t n);

void CheckEmbedding(const Tensor& tokens, const Tensor& table, const Tensor& out);
void CheckEmbeddingBackward(const Tensor& tokens, const Tensor& dout, const Tensor& dtable);

// A tensor of any rank as rows of its last dimension.
struct RowSizes {
  int64_t rows, width;
};
RowSizes RowsOf(const Tensor& x);
void CheckAddBias(const Tensor& bias, const Tensor& y);
void CheckAddBiasBackward(const Tensor& dy, const Tensor& dbias);
RowSizes CheckRmsNorm(const Tensor& x, const Norm& norm, const Tensor& y);
RowSizes CheckAddRmsNorm(const Tensor& x, const Tensor& sum, const Norm& norm, const Tensor& y);
RowSizes CheckRmsNormBackward(const Tensor& x, const Norm& norm, const Tensor& dy, const Tensor& dx,
                              const Tensor& dweight);
void CheckRope(const Tensor& x, const Tensor& positions, const RopeTables& tables);
// gate, up and out or dout; and the two gradients.
void CheckGlu(const Tensor& gate, const Tensor& up, const Tensor& out);
void CheckGluBackward(const Tensor& gate, const Tensor& up, const Tensor& dout, const Tensor& dgate,
                      const Tensor& dup);

void CheckAttentionForward(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v,
                           bool first, bool last, const AttentionState& state, const Tensor& out,
                           const Tensor& lse);
void CheckAttentionDelta(const Tensor& out, const Tensor& dout, const Tensor& delta);
void CheckAttentionSinksBackward(const Tensor& sinks, const Tensor& lse, const Tensor& delta,
                                 const Tensor& dsinks);
void CheckMeanOfRows(const Tensor& x, std::span<const Range> rows, int64_t num_rows, const Tensor& mean);
void CheckAttentionBackward(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& dout, const Tensor& lse, const Tensor& delta, const Tensor& dq,
                            const Tensor& dk, const Tensor& dv);

void CheckSoftCap(float cap, const Tensor& logits);
void CheckSoftCapBackward(const Tensor& capped, float cap, const Tensor& dlogits);
void CheckCrossEntropy(const Tensor& logits, const Tensor& targets);
void CheckTokenLosses(const Tensor& logits, const Tensor& targets, const Tensor& losses,
                      const Tensor& argmax);
void CheckCrossEntropyBackward(const Tensor& logits, const Tensor& targets, const Tensor& dlogits);

void CheckSumsOfSquares(const Tensor& x, const Tensor& sums);
void CheckSgd(const Tensor& grad, const Tensor& master, const Tensor& compute);
void CheckAdamW(const AdamWArgs& args, const Tensor& grad, const Tensor& master, const Tensor& exp_avg,
                const Tensor& exp_avg_sq, const Tensor& compute);

}  // namespace longspan::shapes
