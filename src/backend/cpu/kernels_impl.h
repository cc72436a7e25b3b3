// The kernels' source, included by one file per CPU target (kernels_scalar.cc, kernels_avx2.cc,
// kernels_avx512.cc).
//
// Everything here has internal linkage and nothing comes from the standard library: of an inline function
// that several files define the linker keeps one copy, perhaps the AVX-512 one, for everyone. `omp simd`
// makes the compiler vectorise at any optimisation level, and lets it reorder the sums named in a reduction.
#pragma once

#include "backend/cpu/kernels.h"

#define LONGSPAN_INLINE __attribute__((always_inline)) inline

namespace longspan::cpu {
namespace {

LONGSPAN_INLINE float Load(float x) { return x; }
LONGSPAN_INLINE float Load(BFloat16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}

LONGSPAN_INLINE void Store(float x, float& to) { to = x; }
// To nearest even; NaN stays NaN.
LONGSPAN_INLINE void Store(float x, BFloat16& to) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t quiet = (u >> 16) | 0x40u;
  to.bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// e^x within two units in the last place; 0 below −86.98 (1.7e-38, where normal numbers end), infinite
// above 88.72. Cephes' expf: 2^n · p(r) with n = round(x / ln 2) and r = x − n·ln 2 in two pieces.
LONGSPAN_INLINE float Exp(float x) {
  constexpr float kLowest = -86.98f, kHighest = 88.72283f, kRound = 12582912.0f;  // 1.5 · 2^23
  const float bounded = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
  const float shifted = bounded * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^(n − 1) · 2p: n is −125 … 128, and 128 has no exponent of its own.
  const uint32_t exponent = (__builtin_bit_cast(uint32_t, shifted) + 126u) << 23;
  const float value = __builtin_bit_cast(float, exponent) * (p + p);
  return x < kLowest ? 0.0f : (x > kHighest ? __builtin_inff() : value);
}

// ---- Sums and casts ----

template <class T>
void Add(const T* x, T* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) Store(Load(y[i]) + Load(x[i]), y[i]);
}

template <class T>
void Accumulate(const T* x, float* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += Load(x[i]);
}

template <class From, class To>
void Convert(const From* x, To* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) Store(Load(x[i]), y[i]);
}

double SumOfSquares(const float* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

// ---- RMSNorm ----

template <class T>
void RmsNorm(const T* x, const T* weight, float epsilon, T* y, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < width; ++i) squares += Load(x[i]) * Load(x[i]);
    const float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) Store(Load(x[i]) * inverse * Load(weight[i]), y[i]);
  }
}

// With n = x·inverse and g = dy·weight: dx = inverse · (g − n · mean(g·n)), dweight += dy·n.
template <class T>
void RmsNormBackward(const T* x, const T* weight, float epsilon, const T* dy, T* dx, float* dweight,
                     int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    float squares = 0, product = 0;
#pragma omp simd reduction(+ : squares, product)
    for (int64_t i = 0; i < width; ++i) {
      squares += Load(x[i]) * Load(x[i]);
      product += Load(x[i]) * (Load(dy[i]) * Load(weight[i]));
    }
    const float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + epsilon);
    const float mean = product * inverse / static_cast<float>(width);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const float gradient = Load(dy[i]), normed = Load(x[i]) * inverse;
      Store(inverse * (gradient * Load(weight[i]) - normed * mean), dx[i]);
      dweight[i] += gradient * normed;
    }
  }
}

// ---- RoPE ----

template <class T>
void Rope(T* x, int64_t heads, int64_t pairs, const float* coarse, const float* fine, bool inverse) {
  constexpr int64_t kChunk = 128;
  float cosine[kChunk], sine[kChunk];
  const float sign = inverse ? -1.0f : 1.0f;
  for (int64_t begin = 0; begin < pairs; begin += kChunk) {
    const int64_t n = pairs - begin < kChunk ? pairs - begin : kChunk;
    const float *a = coarse + 2 * begin, *b = fine + 2 * begin;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      cosine[i] = a[2 * i] * b[2 * i] - a[2 * i + 1] * b[2 * i + 1];
      sine[i] = sign * (a[2 * i + 1] * b[2 * i] + a[2 * i] * b[2 * i + 1]);
    }
    for (int64_t head = 0; head < heads; ++head) {
      T* low = x + head * 2 * pairs + begin;
      T* high = low + pairs;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float u = Load(low[i]), v = Load(high[i]);
        Store(u * cosine[i] - v * sine[i], low[i]);
        Store(v * cosine[i] + u * sine[i], high[i]);
      }
    }
  }
}

// ---- SwiGLU ----

template <class T>
void SwiGlu(const T* gate, const T* up, T* out, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = Load(gate[i]);
    Store(g / (1.0f + Exp(-g)) * Load(up[i]), out[i]);
  }
}

// d silu(g) / dg = s · (1 + g·(1 − s)) with s = 1 / (1 + e^−g).
template <class T>
void SwiGluBackward(const T* gate, const T* up, const T* dout, T* dgate, T* dup, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = Load(gate[i]), d = Load(dout[i]);
    const float s = 1.0f / (1.0f + Exp(-g));
    Store(d * Load(up[i]) * (s * (1.0f + g * (1.0f - s))), dgate[i]);
    Store(d * (g * s), dup[i]);
  }
}

// ---- Cross entropy ----

// Floats as integers of the same order, and back. A compiler may reorder a maximum of integers, of floats not
// (NaN).
LONGSPAN_INLINE int32_t OrderOf(int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

LogSumExp LogSumExpOf(const float* logits, int64_t n) {
  int32_t highest = OrderOf(__builtin_bit_cast(int32_t, -__builtin_inff()));
#pragma omp simd reduction(max : highest)
  for (int64_t i = 0; i < n; ++i) {
    const int32_t order = OrderOf(__builtin_bit_cast(int32_t, logits[i]));
    highest = highest < order ? order : highest;
  }
  const float max = __builtin_bit_cast(float, OrderOf(highest));
  // In f64: equal terms rounded all the same way would add up to a visible error, and a confident row's small
  // ones would vanish beside its 1.
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(Exp(logits[i] - max));
  return {max, sum};
}

template <class T>
void ScaledExp(const float* logits, float max, float factor, T* out, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) Store(Exp(logits[i] - max) * factor, out[i]);
}

// ---- Optimizers ----

void AdamW(const AdamWFactors& factors, const float* grad, float* master, float* exp_avg, float* exp_avg_sq,
           int64_t n) {
  const AdamWFactors f = factors;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * f.grad_scale;
    const float m = f.beta1 * exp_avg[i] + f.one_minus_beta1 * g;
    const float v = f.beta2 * exp_avg_sq[i] + f.one_minus_beta2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = master[i] * f.decay - f.step_size * m / (__builtin_sqrtf(v) * f.inverse_root_c2 + f.epsilon);
  }
}

void Sgd(float rate, const float* grad, float* master, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) master[i] -= rate * grad[i];
}

template <class T>
constexpr TypedKernels<T> kTypedTable = {Add<T>,  Accumulate<T>, RmsNorm<T>,        RmsNormBackward<T>,
                                         Rope<T>, SwiGlu<T>,     SwiGluBackward<T>, ScaledExp<T>};

constexpr Kernels kTable = {kTypedTable<float>,
                            kTypedTable<BFloat16>,
                            Convert<float, BFloat16>,
                            Convert<BFloat16, float>,
                            LogSumExpOf,
                            SumOfSquares,
                            AdamW,
                            Sgd};

}  // namespace
}  // namespace longspan::cpu
