#include "bench/attention_problem.h"

#include <cmath>

namespace longspan::bench {

AttentionProblem::AttentionProblem(const AttentionSizes& s, DType type)
    : sizes(s),
      dtype(type),
      q(RandomBuffer("q", type, {s.length, s.query_heads, s.head_dim})),
      k(RandomBuffer("k", type, {s.length, s.kv_heads, s.head_dim})),
      v(RandomBuffer("v", type, {s.length, s.kv_heads, s.head_dim})),
      dout(RandomBuffer("dout", type, {s.length, s.query_heads, s.head_dim})),
      out(type, {s.length, s.query_heads, s.head_dim}),
      lse(DType::kFloat32, {s.length, s.query_heads}),
      delta(DType::kFloat32, {s.length, s.query_heads}),
      dq(DType::kFloat32, {s.length, s.query_heads, s.head_dim}),
      dk(DType::kFloat32, {s.length, s.kv_heads, s.head_dim}),
      dv(DType::kFloat32, {s.length, s.kv_heads, s.head_dim}),
      key_mean(DType::kFloat32, {s.kv_heads, s.head_dim}),
      span{0, s.length} {
  for (int64_t head = 0; head < s.query_heads; ++head)
    kv_of.push_back(static_cast<int32_t>(head / (s.query_heads / s.kv_heads)));
}

AttentionCall AttentionProblem::Call(const Mask& mask) const {
  return {.mask = &mask,
          .query_spans = {&span, 1},
          .key_spans = {&span, 1},
          .kv_of = kv_of,
          .scale = 1 / std::sqrt(static_cast<float>(sizes.head_dim)),
          .key_mean = UsesKeyMean() ? key_mean.tensor() : Tensor()};
}

void AttentionProblem::Forward(Backend& backend, const Mask& mask) const {
  backend.AttentionForward(Call(mask), q.tensor(), k.tensor(), v.tensor(), true, true, {}, out.tensor(),
                           lse.tensor());
}

void AttentionProblem::Backward(Backend& backend, const Mask& mask) const {
  if (UsesKeyMean()) backend.MeanOfRows(k.tensor(), {&span, 1}, sizes.length, key_mean.tensor());
  backend.AttentionDelta(out.tensor(), dout.tensor(), delta.tensor());
  BackwardAlone(backend, mask);
}

void AttentionProblem::BackwardAlone(Backend& backend, const Mask& mask) const {
  backend.AttentionBackward(Call(mask), q.tensor(), k.tensor(), v.tensor(), dout.tensor(), lse.tensor(),
                            delta.tensor(), dq.tensor(), dk.tensor(), dv.tensor());
}

}  // namespace longspan::bench
