#include <immintrin.h>

#include "backend/cpu/peak.h"

namespace longspan::cpu {
namespace {

constexpr int kChains = 12;  // independent sums, enough to cover the latency of two units

void Run(int64_t iterations, const uint32_t* operands) {
  __m256 sum[kChains];
#pragma GCC unroll 32  // every index a constant, or the sums live in memory
  for (int i = 0; i < kChains; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i + 1));
  // Two of each in turn, so that neighbours differ where the numbers do.
  __m256 factor[2], term[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    factor[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(operands) + 16 * i);
    term[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(operands) + 16 * (2 + i));
    __asm__ volatile("" : "+x"(factor[i]), "+x"(term[i]));
  }
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 32
    for (int i = 0; i < kChains; ++i) {
      sum[i] = _mm256_fmadd_ps(sum[i], factor[i % 2], term[i / 2 % 2]);
      __asm__ volatile("" : "+x"(sum[i]));  // a result that nobody reads is computed all the same
    }
  }
}

}  // namespace

const PeakUnit kAvx2Peak = {"avx2 fma", kChains * 8 * 2, false, Run};

}  // namespace longspan::cpu
