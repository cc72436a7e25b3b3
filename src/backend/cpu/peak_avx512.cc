#include <immintrin.h>

#include "backend/cpu/peak.h"

namespace longspan::cpu {
namespace {

constexpr int kChains = 16;  // independent sums, enough to cover the latency of two units

void Run(int64_t iterations) {
  __m512 sum[kChains];
#pragma GCC unroll 32  // every index a constant, or the sums live in memory
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i + 1));
  __m512 factor = _mm512_set1_ps(0.75f), term = _mm512_set1_ps(0.3f);
  __asm__ volatile("" : "+v"(factor), "+v"(term));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 32
    for (int i = 0; i < kChains; ++i) {
      sum[i] = _mm512_fmadd_ps(sum[i], factor, term);
      __asm__ volatile("" : "+v"(sum[i]));  // a result that nobody reads is computed all the same
    }
  }
}

}  // namespace

const PeakUnit kAvx512Peak = {"avx512 fma", kChains * 16 * 2, Run};

}  // namespace longspan::cpu
