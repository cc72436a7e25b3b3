// What a call of attention works on: one rank, all keys in one call.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "bench/measure.h"
#include "mask/mask.h"

namespace longspan::bench {

struct AttentionSizes {
  int64_t length, head_dim, query_heads, kv_heads;
};

// The gradients are sums that go on growing from run to run, which costs the same.
struct AttentionProblem {
  AttentionProblem(const AttentionSizes& s, DType type);

  // As the strategies do: dq of bf16 takes the keys less their mean.
  bool UsesKeyMean() const { return dtype == DType::kBFloat16; }
  AttentionCall Call(const Mask& mask) const;
  void Forward(Backend& backend, const Mask& mask) const;
  // With what precedes it, the keys' mean and rowsum(out ∘ dout); and without.
  void Backward(Backend& backend, const Mask& mask) const;
  void BackwardAlone(Backend& backend, const Mask& mask) const;

  AttentionSizes sizes;
  DType dtype;
  Buffer q, k, v, dout, out, lse, delta, dq, dk, dv;
  Buffer key_mean;
  Range span;
  std::vector<int32_t> kv_of;
};

}  // namespace longspan::bench
