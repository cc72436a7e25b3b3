// The row sums of out ∘ dout. See attention_impl.h.
#pragma once

#include "backend/cpu/attention_tile_impl.h"

namespace longspan::cpu {
namespace {

template <bool kBf16>
float RowDot(const void* a, const void* b, int64_t begin, int64_t n) {
  Vec sum = Set(0);
  int64_t i = begin;
  for (; i + kLanes <= begin + n; i += kLanes) sum = Fma(LoadFrom<kBf16>(a, i), LoadFrom<kBf16>(b, i), sum);
  float rest = 0;
  for (; i < begin + n; ++i) rest += ScalarFrom<kBf16>(a, i) * ScalarFrom<kBf16>(b, i);
  return SumOf(sum) + rest;
}

void Delta(const void* out, const void* dout, bool is_bf16, int64_t rows, int64_t width, float* delta) {
  for (int64_t r = 0; r < rows; ++r)
    delta[r] =
        is_bf16 ? RowDot<true>(out, dout, r * width, width) : RowDot<false>(out, dout, r * width, width);
}

}  // namespace
}  // namespace longspan::cpu
