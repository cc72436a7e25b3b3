// What the forward and backward drivers share: heads of tensors, and which query heads a KV head serves.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/attention_kernels.h"

namespace longspan::cpu {

// Head `head` of x (rows, heads, width), f32 or bf16.
inline ConstRows HeadOf(const Tensor& x, int64_t head) {
  return {static_cast<const char*>(x.raw()) + head * x.dim(2) * SizeOf(x.dtype()), x.dim(1) * x.dim(2),
          x.dtype() == DType::kBFloat16};
}

// Head `head` of f32 x (rows, heads, width) or (rows, heads).
inline FloatRows FloatHeadOf(const Tensor& x, int64_t head) {
  const int64_t width = x.rank() == 3 ? x.dim(2) : 1;
  return {x.data<float>() + head * width, x.dim(1) * width};
}

// For each KV head the query heads that read it, in increasing order.
inline std::vector<std::vector<int64_t>> QueryHeadsOf(const AttentionCall& call, int64_t num_kv_heads) {
  std::vector<std::vector<int64_t>> heads(static_cast<size_t>(num_kv_heads));
  for (size_t h = 0; h < call.kv_of.size(); ++h) {
    CHECK(call.kv_of[h] >= 0 && call.kv_of[h] < num_kv_heads);
    heads[static_cast<size_t>(call.kv_of[h])].push_back(static_cast<int64_t>(h));
  }
  return heads;
}

// All that both passes ask of their arguments.
void CheckAttention(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v);

}  // namespace longspan::cpu
