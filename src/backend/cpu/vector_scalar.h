// Vectors of the attention kernels: any CPU, through the compiler's vector extension, 4 floats, 16 registers.
#pragma once

#include <cstdint>

#include "backend/cpu/inline.h"

namespace longspan::cpu {
namespace {

typedef float Vec __attribute__((vector_size(16)));
typedef uint32_t BitsVec __attribute__((vector_size(16)));
constexpr int kLanes = 4;
constexpr int kTileVectors = 2;  // columns of a register tile: 6 × 2 accumulators, 2 operands, a broadcast

LONGSPAN_INLINE Vec Set(float x) { return Vec{x, x, x, x}; }
LONGSPAN_INLINE Vec Load(const float* p) {
  Vec x;
  __builtin_memcpy(&x, p, sizeof(x));
  return x;
}
LONGSPAN_INLINE void Store(float* p, Vec x) { __builtin_memcpy(p, &x, sizeof(x)); }
LONGSPAN_INLINE Vec LoadBf16(const uint16_t* p) {
  const BitsVec bits = {p[0], p[1], p[2], p[3]};
  return reinterpret_cast<Vec>(bits << 16);
}
// Lanes taken as pairs of bf16: the lower or upper one of each.
LONGSPAN_INLINE Vec LowerBf16(Vec x) { return reinterpret_cast<Vec>(reinterpret_cast<BitsVec>(x) << 16); }
LONGSPAN_INLINE Vec UpperBf16(Vec x) {
  return reinterpret_cast<Vec>(reinterpret_cast<BitsVec>(x) & 0xffff0000u);
}
// Rounds to nearest even; NaN stays NaN.
LONGSPAN_INLINE void StoreBf16(uint16_t* p, Vec x) {
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t bits = reinterpret_cast<BitsVec>(x)[i];
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, quiet = (bits >> 16) | 0x40u;
    p[i] = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}
LONGSPAN_INLINE Vec Add(Vec a, Vec b) { return a + b; }
LONGSPAN_INLINE Vec Sub(Vec a, Vec b) { return a - b; }
LONGSPAN_INLINE Vec Mul(Vec a, Vec b) { return a * b; }
LONGSPAN_INLINE Vec Div(Vec a, Vec b) { return a / b; }
LONGSPAN_INLINE Vec Choose(BitsVec mask, Vec x, Vec y) {
  return reinterpret_cast<Vec>((reinterpret_cast<BitsVec>(x) & mask) |
                               (reinterpret_cast<BitsVec>(y) & ~mask));
}
// Of a pair with a NaN these return b.
LONGSPAN_INLINE Vec Max(Vec a, Vec b) { return Choose(reinterpret_cast<BitsVec>(a > b), a, b); }
LONGSPAN_INLINE Vec Min(Vec a, Vec b) { return Choose(reinterpret_cast<BitsVec>(a < b), a, b); }
LONGSPAN_INLINE Vec Fma(Vec a, Vec b, Vec c) { return a * b + c; }
LONGSPAN_INLINE float SumOf(Vec x) { return (x[0] + x[2]) + (x[1] + x[3]); }
LONGSPAN_INLINE float MaxOf(Vec x) {
  const float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
  return a > b ? a : b;
}
// Lane i of x where bit i is set, else of y.
LONGSPAN_INLINE Vec Select(uint64_t bits, Vec x, Vec y) {
  const auto low = static_cast<uint32_t>(bits & 15);
  const BitsVec lane = {1, 2, 4, 8};
  return Choose(reinterpret_cast<BitsVec>((BitsVec{low, low, low, low} & lane) == lane), x, y);
}
// x · 2^n, where z = n + 1.5 · 2^23 and the exponent of the result is in range.
LONGSPAN_INLINE Vec ScaleByPower(Vec x, Vec z) {
  return reinterpret_cast<Vec>(reinterpret_cast<BitsVec>(x) + (reinterpret_cast<BitsVec>(z) << 23));
}
// Lane j of x[i] becomes lane i of x[j].
LONGSPAN_INLINE void TransposeLanes(Vec (&x)[kLanes]) {
  const Vec low01 = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5);
  const Vec high01 = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
  const Vec low23 = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
  const Vec high23 = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
  x[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  x[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  x[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  x[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

}  // namespace
}  // namespace longspan::cpu
