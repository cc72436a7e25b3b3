// Vectors of the kernels for attention and matrix products: AVX-512, 16 floats, 32 registers.
#pragma once

#include <cstdint>

#include "backend/cpu/avx512.h"
#include "backend/cpu/inline.h"
#include "backend/cpu/words_avx512.h"

namespace longspan::cpu {
namespace {

using Vec = __m512;
constexpr int kLanes = 16;
constexpr int kTileVectors = 4;  // columns of a register tile: 6 × 4 accumulators, 4 operands, a broadcast

LONGSPAN_INLINE Vec Set(float x) { return _mm512_set1_ps(x); }
LONGSPAN_INLINE Vec Load(const float* p) { return _mm512_loadu_ps(p); }
LONGSPAN_INLINE void Store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
LONGSPAN_INLINE Vec LoadBf16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// Lanes taken as pairs of bf16: the lower or upper one of each.
LONGSPAN_INLINE Vec LowerBf16(Vec x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16));
}
LONGSPAN_INLINE Vec UpperBf16(Vec x) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}
// Rounds to nearest even; NaN stays NaN.
LONGSPAN_INLINE void StoreBf16(uint16_t* p, Vec x) {
  const __m512i bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __m512i result = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(result));
}
LONGSPAN_INLINE Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
LONGSPAN_INLINE Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
LONGSPAN_INLINE Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
LONGSPAN_INLINE Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
// Of a pair with a NaN these return b.
LONGSPAN_INLINE Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
LONGSPAN_INLINE Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
LONGSPAN_INLINE Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }  // a·b + c
LONGSPAN_INLINE float SumOf(Vec x) { return _mm512_reduce_add_ps(x); }
LONGSPAN_INLINE float MaxOf(Vec x) { return _mm512_reduce_max_ps(x); }
// Lane i of x where bit i is set, else of y.
LONGSPAN_INLINE Vec Select(uint64_t bits, Vec x, Vec y) {
  return _mm512_mask_blend_ps(static_cast<__mmask16>(bits), y, x);
}
// x · 2^n, where z = n + 1.5 · 2^23 and the exponent of the result is in range.
LONGSPAN_INLINE Vec ScaleByPower(Vec x, Vec z) {
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(_mm512_castps_si512(z), 23)));
}
// Lane j of x[i] becomes lane i of x[j].
LONGSPAN_INLINE void TransposeLanes(Vec (&x)[kLanes]) {
  Words words[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) words[i] = _mm512_castps_si512(x[i]);
  TransposeWords(words);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) x[i] = _mm512_castsi512_ps(words[i]);
}

}  // namespace
}  // namespace longspan::cpu
