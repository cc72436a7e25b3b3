// The kernels' source, included by one file per CPU target (kernels_scalar.cc, kernels_avx2.cc,
// kernels_avx512.cc).
//
// Everything here has internal linkage and nothing comes from the standard library: of an inline function
// that several files define the linker keeps one copy, perhaps the AVX-512 one, for everyone. `omp simd`
// makes the compiler vectorise at any optimisation level, and lets it reorder the sums named in a reduction.
#pragma once

#include "backend/cpu/inline.h"
#include "backend/cpu/kernels.h"

namespace longspan::cpu {
namespace {

LONGSPAN_INLINE float Load(float x) { return x; }
LONGSPAN_INLINE float Load(BFloat16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}

// Both return what was stored.
LONGSPAN_INLINE float Store(float x, float& to) { return to = x; }
// To nearest even; NaN stays NaN.
LONGSPAN_INLINE float Store(float x, BFloat16& to) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t nearest = bits + 0x7fffu + ((bits >> 16) & 1u), quiet = bits | 0x400000u;
  const uint32_t rounded = x != x ? quiet : nearest;
  to.bits = static_cast<uint16_t>(rounded >> 16);
  return __builtin_bit_cast(float, rounded & 0xffff0000u);
}

// e^x for x ≤ 0 within two units in the last place; 0 below −86.98 (1.7e-38, where normal numbers end); NaN
// stays NaN. Cephes' expf: 2^n · p(r) with n = round(x / ln 2) and r = x − n·ln 2 in two pieces.
LONGSPAN_INLINE float Exp(float x) {
  constexpr float kLowest = -86.98f, kRound = 12582912.0f;  // 1.5 · 2^23
  const float bounded = x < kLowest ? kLowest : x;
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
  // n, −125 … 0, is added to the exponent.
  const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) << 23;
  const float value = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p) + exponent);
  return x < kLowest ? 0.0f : value;
}

// e^−x for x ≥ 0, as exact as an output of this type shows. bf16: relative error 3e-6, a hundredth of what
// its rounding adds, up to 87.3, where normal numbers end; below 2.4e-38 from there; 0 from 88.03 up and for
// NaN.
template <class T>
LONGSPAN_INLINE float ExpOfMinus(float x);
template <>
LONGSPAN_INLINE float ExpOfMinus<float>(float x) {
  return Exp(-x);
}
template <>
LONGSPAN_INLINE float ExpOfMinus<BFloat16>(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 · 2^23
  constexpr uint32_t kHighest = __builtin_bit_cast(uint32_t, 127.0f);
  const uint32_t power = __builtin_bit_cast(uint32_t, x * 1.44269504f);
  const float bounded = __builtin_bit_cast(float, power < kHighest ? power : kHighest);
  const float shifted = kRound - bounded;
  const float f = (kRound - shifted) - bounded;  // in [−½, ½]
  float p = 0.009582853876f;
  p = p * f + 0.05590642989f;
  p = p * f + 0.2402409911f;
  p = p * f + 0.6931241751f;
  p = p * f + 1.0f;
  // At 127 p is 1, whose exponent field 127 becomes 0: a true zero.
  const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) << 23;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p) + exponent);
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

template <class T>
void Scale(float factor, T* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) Store(Load(x[i]) * factor, x[i]);
}

// ---- RMSNorm ----

// One row, whose squares have this sum.
template <class T>
LONGSPAN_INLINE void Normalize(const T* x, float squares, NormWeight<T> norm, T* y, int64_t width) {
  const float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + norm.epsilon);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i)
    Store(Load(x[i]) * inverse * (norm.offset + Load(norm.weight[i])), y[i]);
}

template <class T>
void RmsNorm(const T* x, NormWeight<T> norm, T* y, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < width; ++i) squares += Load(x[i]) * Load(x[i]);
    Normalize(x, squares, norm, y, width);
  }
}

template <class T>
void AddRmsNorm(const T* x, T* sum, NormWeight<T> norm, T* y, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width, sum += width, y += width) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < width; ++i) {
      const float rounded = Store(Load(sum[i]) + Load(x[i]), sum[i]);
      squares += rounded * rounded;
    }
    Normalize(sum, squares, norm, y, width);
  }
}

// With n = x·inverse and g = dy·(offset + weight): dx = inverse · (g − n · mean(g·n)), dweight += dy·n.
template <class T, bool kAccumulate>
void RmsNormBackward(const T* x, NormWeight<T> norm, const float* dy, T* dx, float* dweight, int64_t rows,
                     int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    float squares = 0, product = 0;
#pragma omp simd reduction(+ : squares, product)
    for (int64_t i = 0; i < width; ++i) {
      squares += Load(x[i]) * Load(x[i]);
      product += Load(x[i]) * (dy[i] * (norm.offset + Load(norm.weight[i])));
    }
    const float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + norm.epsilon);
    const float mean = product * inverse / static_cast<float>(width);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const float normed = Load(x[i]) * inverse;
      const float gain = norm.offset + Load(norm.weight[i]);
      const float gradient = inverse * (dy[i] * gain - normed * mean);
      dweight[i] += dy[i] * normed;
      Store(kAccumulate ? Load(dx[i]) + gradient : gradient, dx[i]);
    }
  }
}

// ---- RoPE ----

template <class T>
void Rope(T* x, int64_t heads, int64_t head_dim, int64_t pairs, const float* coarse, const float* fine,
          bool inverse) {
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
      T* low = x + head * head_dim + begin;
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

// ---- Gated units ----

// 1 / (1 + e^−x) and what is left to 1.
struct Sigmoid {
  float value, rest;
};
template <class T>
LONGSPAN_INLINE Sigmoid SigmoidOf(float x) {
  const float e = ExpOfMinus<T>(__builtin_fabsf(x));
  const float larger = 1.0f / (1.0f + e), smaller = e * larger;
  return {x < 0 ? smaller : larger, x < 0 ? larger : smaller};
}

template <class T>
void SwiGlu(const T* gate, const T* up, T* out, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = Load(gate[i]);
    Store(g * SigmoidOf<T>(g).value * Load(up[i]), out[i]);
  }
}

// d silu(g) / dg = s · (1 + g·(1 − s)) with s = 1 / (1 + e^−g).
template <class T>
void SwiGluBackward(const T* gate, const T* up, const T* dout, T* dgate, T* dup, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = Load(gate[i]), d = Load(dout[i]);
    const Sigmoid s = SigmoidOf<T>(g);
    Store(d * Load(up[i]) * (s.value * (1.0f + g * s.rest)), dgate[i]);
    Store(d * (g * s.value), dup[i]);
  }
}

// gelu_tanh(g) = g · ½(1 + tanh(√(2/π) · (g + 0.044715 g³))) = g · sigmoid(z), with z = g · (2√(2/π) + c g²).
// Its sigmoid, and dz/dg. Far out the sigmoid is 0 or 1 whatever z, which must not overflow there.
struct GeluGate {
  Sigmoid s;
  float slope;
};
template <class T>
LONGSPAN_INLINE GeluGate GeluGateOf(float g) {
  constexpr float kLinear = 1.595769122f, kCubic = 0.07135481627f, kFar = 32.0f;
  const float low = g < -kFar ? -kFar : g, bounded = low > kFar ? kFar : low;
  const float square = bounded * bounded;
  return {SigmoidOf<T>(bounded * (kLinear + kCubic * square)), kLinear + 3 * kCubic * square};
}

template <class T>
void GeGlu(const T* gate, const T* up, T* out, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = Load(gate[i]);
    Store(g * GeluGateOf<T>(g).s.value * Load(up[i]), out[i]);
  }
}

// d gelu(g) / dg = s · (1 + g·z′·(1 − s)).
template <class T>
void GeGluBackward(const T* gate, const T* up, const T* dout, T* dgate, T* dup, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = Load(gate[i]), d = Load(dout[i]);
    const GeluGate gelu = GeluGateOf<T>(g);
    Store(d * Load(up[i]) * (gelu.s.value * (1.0f + g * gelu.slope * gelu.s.rest)), dgate[i]);
    Store(d * (g * gelu.s.value), dup[i]);
  }
}

// ---- Soft caps ----

// tanh x within 3e-7 of itself, as attention's (attention_tile_impl.h).
LONGSPAN_INLINE float Tanh(float x) {
  constexpr float kRound = 12582912.0f, kFar = 10.0f;  // 1.5 · 2^23; tanh is ±1 from ±10 on
  const float low = x < -kFar ? -kFar : x, bounded = low > kFar ? kFar : low;
  const float y = bounded * 2.88539008f;  // 2 / ln 2
  const float shifted = y + kRound;
  const float f = y - (shifted - kRound);  // in [−½, ½]
  float p = 0.000154531634f * f + 0.00133908633f;
  p = p * f + 0.00961808302f;
  p = p * f + 0.0555035695f;
  p = p * f + 0.240226507f;
  p = (p * f + 0.693147182f) * f;
  const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) << 23;
  const float power = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, 1.0f) + exponent);
  const float t = power * p + (power - 1.0f);
  return t / (t + 2.0f);
}

void SoftCap(float cap, float* x, int64_t n) {
  const float inverse = 1.0f / cap;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = cap * Tanh(x[i] * inverse);
}

template <class T>
void SoftCapBackward(const float* y, float cap, T* dy, int64_t n) {
  const float inverse = 1.0f / cap;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float t = y[i] * inverse;
    Store(Load(dy[i]) * (1.0f - t * t), dy[i]);
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
  for (int64_t i = 0; i < n; ++i) Store(ExpOfMinus<T>(max - logits[i]) * factor, out[i]);
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
constexpr TypedKernels<T> kTypedTable = {.add = Add<T>,
                                         .accumulate = Accumulate<T>,
                                         .scale = Scale<T>,
                                         .rms_norm = RmsNorm<T>,
                                         .add_rms_norm = AddRmsNorm<T>,
                                         .rms_norm_backward = RmsNormBackward<T, false>,
                                         .rms_norm_backward_add = RmsNormBackward<T, true>,
                                         .rope = Rope<T>,
                                         .swiglu = SwiGlu<T>,
                                         .swiglu_backward = SwiGluBackward<T>,
                                         .geglu = GeGlu<T>,
                                         .geglu_backward = GeGluBackward<T>,
                                         .soft_cap_backward = SoftCapBackward<T>,
                                         .scaled_exp = ScaledExp<T>};

constexpr Kernels kTable = {kTypedTable<float>,
                            kTypedTable<BFloat16>,
                            Convert<float, BFloat16>,
                            Convert<BFloat16, float>,
                            SoftCap,
                            LogSumExpOf,
                            SumOfSquares,
                            AdamW,
                            Sgd};

}  // namespace
}  // namespace longspan::cpu
