// y = x Wᵀ and its two gradients, for weights stored (out, in) as Hugging Face does.
#pragma once

#include "backend/backend.h"

namespace longspan {

// y (n, out) = x (n, in) · weightᵀ.
inline void Linear(Backend& backend, Tensor x, Tensor weight, Tensor y) {
  backend.Matmul({.a = x, .b = weight, .c = y, .transpose_b = true});
}

// dx (n, in) = dy (n, out) · weight; += with `accumulate`, into f32 alone.
inline void LinearBackwardInput(Backend& backend, Tensor dy, Tensor weight, Tensor dx,
                                bool accumulate = false) {
  backend.Matmul({.a = dy, .b = weight, .c = dx, .accumulate = accumulate});
}

// dweight (out, in) f32 += dyᵀ · x.
inline void LinearBackwardWeight(Backend& backend, Tensor dy, Tensor x, Tensor dweight) {
  backend.Matmul({.a = dy, .b = x, .c = dweight, .transpose_a = true, .accumulate = true});
}

}  // namespace longspan
