// Transposes f32 or bf16 (as its bits) to f32, for packing. The target's vectors come first; internal linkage
// (attention_impl.h says why).
#pragma once

#include <cstdint>

#include "backend/cpu/inline.h"

namespace longspan::cpu {
namespace {

template <bool kBf16>
LONGSPAN_INLINE float ScalarFrom(const void* data, int64_t i) {
  if constexpr (kBf16) {
    const uint32_t bits = static_cast<const uint16_t*>(data)[i];
    return __builtin_bit_cast(float, bits << 16);
  } else {
    return static_cast<const float*>(data)[i];
  }
}

// kLanes rows of as many words, each one f32 or two bf16: the block's columns, kLanes numbers each, to_stride
// apart.
template <bool kBf16>
LONGSPAN_INLINE void TransposeBlock(const void* x, int64_t first, int64_t x_stride, float* to,
                                    int64_t to_stride) {
  Vec r[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    const int64_t at = first + i * x_stride;
    __builtin_memcpy(&r[i], static_cast<const char*>(x) + at * (kBf16 ? 2 : 4), sizeof(Vec));
  }
  TransposeLanes(r);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if constexpr (kBf16) {
      Store(to + 2 * i * to_stride, LowerBf16(r[i]));
      Store(to + (2 * i + 1) * to_stride, UpperBf16(r[i]));
    } else {
      Store(to + i * to_stride, r[i]);
    }
  }
}

// to[c · to_stride + r] ← x[first + r · x_stride + c] for r < rows, c < columns.
template <bool kBf16>
void Transpose(const void* x, int64_t first, int64_t x_stride, int64_t rows, int64_t columns, float* to,
               int64_t to_stride) {
  constexpr int64_t kBlock = kBf16 ? 2 * kLanes : kLanes;  // columns
  for (int64_t c = 0; c < columns; c += kBlock)
    for (int64_t r = 0; r < rows; r += kLanes) {
      const int64_t begin = first + r * x_stride + c;
      if (r + kLanes <= rows && c + kBlock <= columns) {
        TransposeBlock<kBf16>(x, begin, x_stride, to + c * to_stride + r, to_stride);
        continue;
      }
      for (int64_t j = 0; j < kBlock && c + j < columns; ++j)
        for (int64_t i = 0; i < kLanes && r + i < rows; ++i)
          to[(c + j) * to_stride + r + i] = ScalarFrom<kBf16>(x, begin + i * x_stride + j);
    }
}

}  // namespace
}  // namespace longspan::cpu
