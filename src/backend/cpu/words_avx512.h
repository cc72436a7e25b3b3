// Vectors of 32 bf16, in 32-bit *words* of two, as products read them: loaded from rows, rearranged, rounded
// from f32. AVX-512 (F, BW).
#pragma once

#include <cstdint>

#include "backend/cpu/avx512.h"
#include "backend/cpu/inline.h"

namespace longspan::cpu {
namespace {

using Words = __m512i;
constexpr int kWords = 16;

LONGSPAN_INLINE Words LoadWords(const uint32_t* p) { return _mm512_load_si512(p); }
LONGSPAN_INLINE void StoreWords(uint32_t* p, Words x) { _mm512_store_si512(p, x); }

// The first n of 32 numbers, then zeros; n may be any number.
LONGSPAN_INLINE Words LoadPairs(const uint16_t* p, int64_t n) {
  const uint32_t mask = n >= 2 * kWords ? ~0u : n <= 0 ? 0u : (1u << n) - 1;
  return _mm512_maskz_loadu_epi16(mask, p);
}

// Words 2i of the result are x's numbers and words 2i + 1 are y's: (x0, y0), (x1, y1), … of the lower or
// upper 16.
LONGSPAN_INLINE Words InterleaveLow(Words x, Words y) {
  alignas(64) static constexpr uint16_t kIndex[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                      37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                      11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  return _mm512_permutex2var_epi16(x, _mm512_load_si512(kIndex), y);
}
LONGSPAN_INLINE Words InterleaveHigh(Words x, Words y) {
  alignas(64) static constexpr uint16_t kIndex[32] = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21,
                                                      53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58,
                                                      27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  return _mm512_permutex2var_epi16(x, _mm512_load_si512(kIndex), y);
}

// Element j of r[i] becomes element i of r[j].
LONGSPAN_INLINE void TransposeWords(Words (&r)[16]) {
  Words t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

// 32 numbers rounded to nearest even, those of `low` first. A NaN stays one if the lower half of its bits is
// zero, as in every NaN that comes of bf16 operands.
LONGSPAN_INLINE Words RoundToPairs(__m512 low, __m512 high) {
  const auto rounded = [](__m512 x) __attribute__((always_inline)) {
    const Words bits = _mm512_castps_si512(x);
    const Words odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  };
  alignas(64) static constexpr uint16_t kUpperHalves[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                            23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                            45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(rounded(low), _mm512_load_si512(kUpperHalves), rounded(high));
}

}  // namespace
}  // namespace longspan::cpu
