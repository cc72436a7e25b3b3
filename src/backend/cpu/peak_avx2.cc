#include <immintrin.h>

#include "backend/cpu/peak.h"

namespace longspan::cpu {
namespace {

constexpr int kChains = 12;  // independent sums, enough to cover the latency of two units

void Run(int64_t iterations) {
  __m256 sum[kChains];
#pragma GCC unroll 32  // every index a constant, or the sums live in memory
  for (int i = 0; i < kChains; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i + 1));
  __m256 factor = _mm256_set1_ps(0.75f), term = _mm256_set1_ps(0.3f);
  __asm__ volatile("" : "+x"(factor), "+x"(term));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 32
    for (int i = 0; i < kChains; ++i) {
      sum[i] = _mm256_fmadd_ps(sum[i], factor, term);
      __asm__ volatile("" : "+x"(sum[i]));  // a result that nobody reads is computed all the same
    }
  }
}

}  // namespace

const PeakUnit kAvx2Peak = {"avx2 fma", kChains * 8 * 2, Run};

}  // namespace longspan::cpu
