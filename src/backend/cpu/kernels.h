// The inner loops of the pointwise operations: plain pointers, one thread, no allocation. kernels_impl.h is
// compiled once per CPU target; what cuts an operation into rows and blocks for the threads lies beside each
// operation.
#pragma once

#include <cstdint>

#include "backend/cpu/cpu_features.h"
#include "core/tensor.h"

namespace longspan::cpu {

// A row of logits: max and Σ exp(logits − max).
struct LogSumExp {
  float max;
  double sum;
};

// AdamW with everything that doesn't depend on the element taken together.
struct AdamWFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size;        // learning_rate / c1
  float inverse_root_c2;  // 1 / √c2
  float epsilon, decay;   // decay = 1 − learning_rate · weight_decay
};

// What multiplies a normed row is offset + weight.
template <class T>
struct NormWeight {
  const T* weight;
  float epsilon, offset;
};

// T is float or BFloat16; arithmetic is in f32.
template <class T>
struct TypedKernels {
  void (*add)(const T* x, T* y, int64_t n);             // y += x
  void (*accumulate)(const T* x, float* y, int64_t n);  // y += x
  void (*scale)(float factor, T* x, int64_t n);         // x *= factor
  // y may be x.
  void (*rms_norm)(const T* x, NormWeight<T> norm, T* y, int64_t rows, int64_t width);
  // sum += x, y = the norm of what sum then holds.
  void (*add_rms_norm)(const T* x, T* sum, NormWeight<T> norm, T* y, int64_t rows, int64_t width);
  // dx = or +=; dweight (width) += over the rows. dx may be x.
  void (*rms_norm_backward)(const T* x, NormWeight<T> norm, const float* dy, T* dx, float* dweight,
                            int64_t rows, int64_t width);
  void (*rms_norm_backward_add)(const T* x, NormWeight<T> norm, const float* dy, T* dx, float* dweight,
                                int64_t rows, int64_t width);
  // One token: x (heads, head_dim), of which the first 2·pairs are rotated; coarse and fine (pairs, 2) are
  // its rows of the two tables.
  void (*rope)(T* x, int64_t heads, int64_t head_dim, int64_t pairs, const float* coarse, const float* fine,
               bool inverse);
  void (*swiglu)(const T* gate, const T* up, T* out, int64_t n);
  void (*swiglu_backward)(const T* gate, const T* up, const T* dout, T* dgate, T* dup, int64_t n);
  void (*geglu)(const T* gate, const T* up, T* out, int64_t n);
  void (*geglu_backward)(const T* gate, const T* up, const T* dout, T* dgate, T* dup, int64_t n);
  // dy *= 1 − (y / cap)², with y as soft_cap made it.
  void (*soft_cap_backward)(const float* y, float cap, T* dy, int64_t n);
  // out = exp(logits − max) · factor; no logit exceeds max.
  void (*scaled_exp)(const float* logits, float max, float factor, T* out, int64_t n);
};

struct Kernels {
  TypedKernels<float> f32;
  TypedKernels<BFloat16> bf16;
  void (*to_bf16)(const float* x, BFloat16* y, int64_t n);
  void (*to_f32)(const BFloat16* x, float* y, int64_t n);
  void (*soft_cap)(float cap, float* x, int64_t n);  // x = cap · tanh(x / cap)
  LogSumExp (*log_sum_exp)(const float* logits, int64_t n);
  double (*sum_of_squares)(const float* x, int64_t n);
  void (*adamw)(const AdamWFactors& factors, const float* grad, float* master, float* exp_avg,
                float* exp_avg_sq, int64_t n);
  void (*sgd)(float rate, const float* grad, float* master, int64_t n);  // master −= rate · grad

  template <class T>
  const TypedKernels<T>& For() const {
    if constexpr (DTypeOf<T>() == DType::kFloat32) {
      return f32;
    } else {
      return bf16;
    }
  }
};

const Kernels& KernelsFor(CpuTarget target);

// One for each file that compiles kernels_impl.h.
extern const Kernels kScalarKernels, kAvx2Kernels, kAvx512Kernels;

// Calls f with a null pointer of the C++ type of `dtype`, which is f32 or bf16.
template <class F>
void WithFloatType(DType dtype, const F& f) {
  if (dtype == DType::kFloat32) {
    f(static_cast<float*>(nullptr));
  } else {
    CHECK(dtype == DType::kBFloat16);
    f(static_cast<BFloat16*>(nullptr));
  }
}

}  // namespace longspan::cpu
