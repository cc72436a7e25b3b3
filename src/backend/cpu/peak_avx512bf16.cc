#include <immintrin.h>

#include "backend/cpu/peak.h"

namespace longspan::cpu {
namespace {

constexpr int kChains = 16;  // independent sums, enough to cover the latency of two units

void Run(int64_t iterations, const uint32_t* operands) {
  __m512 sum[kChains];
#pragma GCC unroll 32  // every index a constant, or the sums live in memory
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i + 1));
  // Four of each, combined in turn, so that neighbours differ where the numbers do.
  __m512i left[4], right[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    left[i] = _mm512_loadu_si512(operands + 16 * i);
    right[i] = _mm512_loadu_si512(operands + 16 * (4 + i));
    __asm__ volatile("" : "+v"(left[i]), "+v"(right[i]));
  }
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 32
    for (int i = 0; i < kChains; ++i) {
      sum[i] = _mm512_dpbf16_ps(sum[i], reinterpret_cast<__m512bh>(left[i % 4]),
                                reinterpret_cast<__m512bh>(right[i / 4]));
      __asm__ volatile("" : "+v"(sum[i]));  // a result that nobody reads is computed all the same
    }
  }
}

}  // namespace

const PeakUnit kAvx512Bf16Peak = {"vdpbf16ps", kChains * 32 * 2, true, Run};

}  // namespace longspan::cpu
