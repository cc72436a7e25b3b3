// Matrix products of bf16 in f32 vectors, included by one file per CPU target after that target's vectors.
// Everything has internal linkage, and nothing comes from the standard library (attention_impl.h says why).
//
// A tile of C, 14 rows × 2 vectors (6 × 2 where there are 16 registers), stays in registers over a block of
// k: a step of k loads two vectors of B and broadcasts a number of each row of A, 16 loads for 28 products. A
// panel of B stays in the L1 cache while the rows of A, which need little of it, pass.
#pragma once

#include "backend/cpu/matmul_vector_kernels.h"
#include "backend/cpu/transpose_impl.h"

namespace longspan::cpu {
namespace {

constexpr int kTileRows = 6;
constexpr int64_t kPanelColumns = kTileVectors * kLanes;

// to[r][i] ← x[r][i]
void CopyRows(const uint16_t* x, int64_t x_stride, int64_t rows, int64_t columns, float* to,
              int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r, x += x_stride, to += to_stride) {
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) Store(to + i, LoadBf16(x + i));
    for (; i < columns; ++i) to[i] = ScalarFrom<true>(x, i);
  }
}

void PackA(const VectorOperand& from, int64_t rows, int64_t depth, float* to) {
  if (from.k_is_contiguous) {
    CopyRows(from.data, from.stride, rows, depth, to, kPackedRow);
  } else {
    Transpose<true>(from.data, 0, from.stride, depth, rows, to, kPackedRow);
  }
}

void PackB(const VectorOperand& from, int64_t columns, int64_t depth, float* to) {
  for (int64_t begin = 0; begin < columns; begin += kPanelColumns, to += depth * kPanelColumns) {
    const int64_t width = columns - begin < kPanelColumns ? columns - begin : kPanelColumns;
    if (width < kPanelColumns)
      __builtin_memset(to, 0, sizeof(float) * static_cast<size_t>(depth * kPanelColumns));
    if (from.k_is_contiguous) {
      Transpose<true>(from.data, begin * from.stride, from.stride, width, depth, to, kPanelColumns);
    } else {
      CopyRows(from.data + begin, from.stride, depth, width, to, kPanelColumns);
    }
  }
}

// Of a tile that ends within a vector: c's columns, one after the other.
template <int kRows>
void StoreNarrow(const Vec (&c)[kRows][kTileVectors], const VectorBlock& block, int64_t row, int64_t column) {
  const int64_t width = block.columns - column;
  for (int r = 0; r < kRows; ++r) {
    float sums[kPanelColumns];
    uint16_t halves[kPanelColumns];
    for (int j = 0; j < kTileVectors; ++j) Store(sums + j * kLanes, c[r][j]);
    if (block.add != nullptr)
      for (int64_t i = 0; i < width; ++i) sums[i] += block.add[(row + r) * block.add_stride + column + i];
    for (int j = 0; j < kTileVectors; ++j) StoreBf16(halves + j * kLanes, Load(sums + j * kLanes));
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = (row + r) * block.c_stride + column + i;
      if (block.c_is_bf16) {
        static_cast<uint16_t*>(block.c)[at] = halves[i];
      } else {
        static_cast<float*>(block.c)[at] = sums[i];
      }
    }
  }
}

template <int kRows>
LONGSPAN_INLINE void StoreTile(Vec (&c)[kRows][kTileVectors], const VectorBlock& block, int64_t row,
                               int64_t column) {
  if (block.add != nullptr) {
    const float* add = block.add + row * block.add_stride + column;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j)
        c[r][j] = Add(c[r][j], Load(add + r * block.add_stride + j * kLanes));
  }
  const int64_t at = row * block.c_stride + column;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) {
      if (block.c_is_bf16) {
        StoreBf16(static_cast<uint16_t*>(block.c) + at + r * block.c_stride + j * kLanes, c[r][j]);
      } else {
        Store(static_cast<float*>(block.c) + at + r * block.c_stride + j * kLanes, c[r][j]);
      }
    }
}

template <int kRows>
void MultiplyTile(const VectorBlock& block, const float* b, int64_t row, int64_t column) {
  const bool whole = column + kPanelColumns <= block.columns;
  if (whole && block.add != nullptr) {  // it is seldom in the L1 cache
    const float* add = block.add + row * block.add_stride + column;
    for (int r = 0; r < kRows; ++r)
      for (int64_t i = 0; i < kPanelColumns; i += 16) __builtin_prefetch(add + r * block.add_stride + i, 1);
  }
  Vec c[kRows][kTileVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) c[r][j] = Set(0);
  const float* a = block.a + row * kPackedRow;
#pragma GCC unroll 2
  for (int64_t k = 0; k < block.depth; ++k) {
    Vec y[kTileVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) y[j] = Load(b + k * kPanelColumns + j * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec x = Set(a[r * kPackedRow + k]);
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) c[r][j] = Fma(x, y[j], c[r][j]);
    }
  }
  if (whole) {
    StoreTile(c, block, row, column);
  } else {
    StoreNarrow(c, block, row, column);
  }
}

// The rows from `row` on that are left, in tiles of kRows and fewer.
template <int kRows>
LONGSPAN_INLINE void MultiplyRows(const VectorBlock& block, const float* b, int64_t row, int64_t column) {
  for (; row + kRows <= block.rows; row += kRows) MultiplyTile<kRows>(block, b, row, column);
  if constexpr (kRows > 4) {
    MultiplyRows<4>(block, b, row, column);
  } else if constexpr (kRows > 1) {
    MultiplyRows<kRows / 2>(block, b, row, column);
  }
}

void Multiply(const VectorBlock& block) {
  const float* b = block.b;
  for (int64_t column = 0; column < block.columns; column += kPanelColumns, b += block.depth * kPanelColumns)
    MultiplyRows<kTileRows>(block, b, 0, column);
}

constexpr VectorKernels kMatmul = {kTileRows, kPanelColumns, PackA, PackB, Multiply};

}  // namespace
}  // namespace longspan::cpu
