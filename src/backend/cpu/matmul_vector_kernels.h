// What a CPU without products of bf16 does for matrix products of bf16: packs operands as f32, and multiplies
// packed blocks. What is packed when, which blocks there are and on which thread is the driver's
// (matmul_vectors.cc).
#pragma once

#include <cstdint>

namespace longspan::cpu {

// Of k in one block, and the distance of two rows of packed A: 16 more, so that rows begin in different cache
// sets.
inline constexpr int64_t kMostDepth = 256, kPackedRow = kMostDepth + 16;

// bf16 (rows, k), where rows are those of A or the columns of B: number (r, i) is data[r · stride + i], or
// data[i · stride + r].
struct VectorOperand {
  const uint16_t* data = nullptr;
  int64_t stride = 0;
  bool k_is_contiguous = true;
};

// c = a · b over one block of k, plus `add` if that is not null. Strides are in numbers.
struct VectorBlock {
  const float *a = nullptr, *b = nullptr;    // as packed
  int64_t rows = 0, columns = 0, depth = 0;  // of them
  const float* add = nullptr;                // (rows, columns); may be c
  int64_t add_stride = 0;
  void* c = nullptr;  // (rows, columns)
  int64_t c_stride = 0;
  bool c_is_bf16 = false;
};

struct VectorKernels {
  int tile_rows, panel_columns;  // blocks of whole ones waste nothing

  // [rows][kPackedRow]
  void (*pack_a)(const VectorOperand& from, int64_t rows, int64_t depth, float* to);
  // [panel][depth][panel_columns], zeros past the last column.
  void (*pack_b)(const VectorOperand& from, int64_t columns, int64_t depth, float* to);
  void (*multiply)(const VectorBlock& block);
};

// One for each file that compiles matmul_vector_impl.h.
extern const VectorKernels kAvx2Matmul, kAvx512Matmul;

}  // namespace longspan::cpu
