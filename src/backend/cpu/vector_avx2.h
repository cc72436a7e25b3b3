// Vectors of the kernels for attention and matrix products: AVX2 with FMA, 8 floats, 16 registers.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/inline.h"

namespace longspan::cpu {
namespace {

using Vec = __m256;
constexpr int kLanes = 8;
constexpr int kTileVectors = 2;  // columns of a register tile: 6 × 2 accumulators, 2 operands, a broadcast

LONGSPAN_INLINE Vec Set(float x) { return _mm256_set1_ps(x); }
LONGSPAN_INLINE Vec Load(const float* p) { return _mm256_loadu_ps(p); }
LONGSPAN_INLINE void Store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
LONGSPAN_INLINE Vec LoadBf16(const uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
// Lanes taken as pairs of bf16: the lower or upper one of each.
LONGSPAN_INLINE Vec LowerBf16(Vec x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 16));
}
LONGSPAN_INLINE Vec UpperBf16(Vec x) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(static_cast<int>(0xffff0000))));
}
// Rounds to nearest even; NaN stays NaN.
LONGSPAN_INLINE void StoreBf16(uint16_t* p, Vec x) {
  const __m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i result = _mm256_blendv_epi8(rounded, quiet, is_nan);
  const __m128i halves =
      _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), halves);
}
LONGSPAN_INLINE Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
LONGSPAN_INLINE Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
LONGSPAN_INLINE Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
LONGSPAN_INLINE Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
// Of a pair with a NaN these return b.
LONGSPAN_INLINE Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
LONGSPAN_INLINE Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
LONGSPAN_INLINE Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }  // a·b + c
LONGSPAN_INLINE float SumOf(Vec x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
LONGSPAN_INLINE float MaxOf(Vec x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
// Lane i of x where bit i is set, else of y.
LONGSPAN_INLINE Vec Select(uint64_t bits, Vec x, Vec y) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits & 0xff)), lane);
  return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane)));
}
// x · 2^n, where z = n + 1.5 · 2^23 and the exponent of the result is in range.
LONGSPAN_INLINE Vec ScaleByPower(Vec x, Vec z) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_castps_si256(z), 23)));
}
// Lane j of x[i] becomes lane i of x[j].
LONGSPAN_INLINE void TransposeLanes(Vec (&x)[kLanes]) {
  Vec t[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += 2) {
    t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += 4) {
    x[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    x[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    x[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    x[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) x[i] = t[i];
}

}  // namespace
}  // namespace longspan::cpu
