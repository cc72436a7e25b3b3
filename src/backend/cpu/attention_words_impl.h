// What the bf16 kernels share, those on dot products and those on tiles: vectors of 32 bf16, in 32-bit
// *words* of two, loaded from rows and rearranged for packing. AVX-512 (F, BW, DQ, VL).
#pragma once

#include "backend/cpu/attention_tile_impl.h"

namespace longspan::cpu {
namespace {

using Words = __m512i;
constexpr int kWords = 16;
static_assert(kLanes == kWords);

LONGSPAN_INLINE Words LoadWords(const uint32_t* p) { return _mm512_load_si512(p); }
LONGSPAN_INLINE void StoreWords(uint32_t* p, Words x) { _mm512_store_si512(p, x); }

LONGSPAN_INLINE void ClearWords(int64_t n, uint32_t* to) {
  for (int64_t i = 0; i < n; i += kWords) StoreWords(to + i, _mm512_setzero_si512());
}

// The first n of 32 numbers, then zeros; n may be any number.
LONGSPAN_INLINE Words LoadPairs(const uint16_t* p, int64_t n) {
  const uint32_t mask = n >= 2 * kWords ? ~0u : n <= 0 ? 0u : (1u << n) - 1;
  return _mm512_maskz_loadu_epi16(mask, p);
}

LONGSPAN_INLINE const uint16_t* RowOf(const ConstRows& x, int64_t row) {
  return static_cast<const uint16_t*>(x.data) + row * x.stride;
}

// Rows of a head lie far apart in memory: asks for one that will soon be packed.
LONGSPAN_INLINE void PrefetchRow(const ConstRows& x, int64_t row, int64_t width) {
  for (int64_t i = 0; i < width; i += 2 * kWords) __builtin_prefetch(RowOf(x, row) + i);
}
constexpr int64_t kPrefetchRows = 16;  // ahead

// 32 numbers rounded to nearest even, those of `low` first. Not for NaN.
LONGSPAN_INLINE Words RoundToPairs(Vec low, Vec high) {
  const auto round = [](Vec x) __attribute__((always_inline)) {
    const Words bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
    const Words odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const Words rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(round(low)), round(high), 1);
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

// The first n of 32 numbers less those of `mean`, then zeros; n may be any number.
LONGSPAN_INLINE Words LoadCentred(const uint16_t* p, const float* mean, int64_t n) {
  const Words x = LoadPairs(p, n);
  const uint32_t mask = n >= 2 * kWords ? ~0u : n <= 0 ? 0u : (1u << n) - 1;
  const Vec low =
      reinterpret_cast<Vec>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(x)), 16));
  const Vec high =
      reinterpret_cast<Vec>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(x, 1)), 16));
  return RoundToPairs(
      Sub(low, _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), mean)),
      Sub(high, _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> kWords), mean + kWords)));
}

// Whether n numbers hold neither a NaN nor an infinity.
LONGSPAN_INLINE bool IsFinite(const uint16_t* p, int64_t n) {
  __mmask32 others = 0;
  for (int64_t i = 0; i < n; i += 2 * kWords)
    others |= _mm512_cmpgt_epu16_mask(_mm512_slli_epi16(LoadPairs(p + i, n - i), 1),
                                      _mm512_set1_epi16(static_cast<int16_t>(0xfeff)));
  return others == 0;
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

LONGSPAN_INLINE float Magnitude(float x) { return x < 0 ? -x : x; }

}  // namespace
}  // namespace longspan::cpu
