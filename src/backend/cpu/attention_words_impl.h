// What the bf16 kernels share, those on dot products and those on tiles: words (words_avx512.h) of rows of
// heads. AVX-512 (F, BW, DQ, VL).
#pragma once

#include "backend/cpu/attention_tile_impl.h"
#include "backend/cpu/words_avx512.h"

namespace longspan::cpu {
namespace {

static_assert(kLanes == kWords);

LONGSPAN_INLINE void ClearWords(int64_t n, uint32_t* to) {
  for (int64_t i = 0; i < n; i += kWords) StoreWords(to + i, _mm512_setzero_si512());
}

LONGSPAN_INLINE const uint16_t* RowOf(const ConstRows& x, int64_t row) {
  return static_cast<const uint16_t*>(x.data) + row * x.stride;
}

// Rows of a head lie far apart in memory: asks for one that will soon be packed.
LONGSPAN_INLINE void PrefetchRow(const ConstRows& x, int64_t row, int64_t width) {
  for (int64_t i = 0; i < width; i += 2 * kWords) __builtin_prefetch(RowOf(x, row) + i);
}
constexpr int64_t kPrefetchRows = 16;  // ahead

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

LONGSPAN_INLINE float Magnitude(float x) { return x < 0 ? -x : x; }

}  // namespace
}  // namespace longspan::cpu
