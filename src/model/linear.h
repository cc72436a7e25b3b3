// y = x Wᵀ + b and its gradients, for weights stored (out, in) as Hugging Face does.
#pragma once

#include "backend/backend.h"
#include "model/weight_store.h"

namespace longspan {

// y (n, out) = x (n, in) · weightᵀ + bias (out), which may be null.
inline void Linear(Backend& backend, Tensor x, const Weight& weight, Tensor y, Tensor bias = {}) {
  backend.Matmul({.a = x, .b = weight.values, .c = y, .transpose_b = true, .packed_b = weight.packed});
  if (!bias.IsNull()) backend.AddBias(bias, y);
}

// dx (n, in) = dy (n, out) · weight; += with `accumulate`, into f32 alone.
inline void LinearBackwardInput(Backend& backend, Tensor dy, const Weight& weight, Tensor dx,
                                bool accumulate = false) {
  backend.Matmul({.a = dy, .b = weight.values, .c = dx, .accumulate = accumulate, .packed_b = weight.packed});
}

// dweight (out, in) f32 += dyᵀ · x; dbias (out) f32 += Σ over rows of dy, unless it is null.
inline void LinearBackwardWeight(Backend& backend, Tensor dy, Tensor x, Tensor dweight, Tensor dbias = {}) {
  backend.Matmul({.a = dy, .b = x, .c = dweight, .transpose_a = true, .accumulate = true});
  if (!dbias.IsNull()) backend.AddBiasBackward(dy, dbias);
}

}  // namespace longspan
