#include <immintrin.h>

#include "backend/cpu/peak.h"

namespace longspan::cpu {
namespace {

constexpr int kChains = 16;  // independent sums, enough to cover the latency of two units

void Run(int64_t iterations) {
  __m512 sum[kChains];
#pragma GCC unroll 32  // every index a constant, or the sums live in memory
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i + 1));
  // Pairs whose products nearly cancel, so that the sums stay ordinary numbers.
  __m512i left = _mm512_set1_epi32(0x3f8ebf93), right = _mm512_set1_epi32(static_cast<int>(0xbf933f8eu));
  __asm__ volatile("" : "+v"(left), "+v"(right));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 32
    for (int i = 0; i < kChains; ++i) {
      sum[i] = _mm512_dpbf16_ps(sum[i], reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right));
      __asm__ volatile("" : "+v"(sum[i]));  // a result that nobody reads is computed all the same
    }
  }
}

}  // namespace

const PeakUnit kAvx512Bf16Peak = {"vdpbf16ps", kChains * 32 * 2, Run};

}  // namespace longspan::cpu
