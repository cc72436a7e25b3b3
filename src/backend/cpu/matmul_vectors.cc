// Matrix products of bf16 in f32 vectors: what is packed when, which block is whose. The order in which a
// number of C is summed is that of k, and each block of k from zero, whatever blocks of C and threads there
// are, so neither changes a bit.
//
// A task is a block of C. It packs, for one block of k after another, as f32 what it needs of B, which stays
// in the L2 cache, and of A one strip of rows at a time. Blocks are large enough that packing, done again for
// each of them, costs little, and small enough that the workspace does not grow with the operands. Sums that
// go on over several blocks of k are C itself, or if that is bf16 a block of their own.
#include <algorithm>

#include "backend/cpu/matmul.h"
#include "backend/cpu/matmul_vector_kernels.h"
#include "backend/cpu/parallel.h"
#include "backend/shapes.h"

namespace longspan::cpu {
namespace {

constexpr int64_t kMostRows = 1024, kMostColumns = 512;  // of a block of C
constexpr int64_t kStripTiles = 28;                      // of rows: in f32 less than 200 KiB

int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }
int64_t RoundUp(int64_t x, int64_t y) { return CeilDiv(x, y) * y; }
int64_t Bytes(int64_t floats) { return RoundUp(floats * SizeOf(DType::kFloat32), 64); }

const VectorKernels& KernelsOf(CpuTarget target) {
  return target == CpuTarget::kAvx2 ? kAvx2Matmul : kAvx512Matmul;
}

// Number (row, k) and all after it, in either order.
VectorOperand Part(const Tensor& x, bool k_is_contiguous, int64_t row, int64_t k) {
  const int64_t stride = x.dim(1);
  const auto* data = reinterpret_cast<const uint16_t*>(x.data<BFloat16>());
  return {data + (k_is_contiguous ? row * stride + k : k * stride + row), stride, k_is_contiguous};
}

// How a product is cut, and what a thread's workspace holds.
struct Plan {
  Plan(const VectorKernels& kernels, const MatmulArgs& args, int num_threads)
      : sizes(shapes::CheckMatmul(args)) {
    const auto [m, n, k] = sizes;
    depth = RoundUp(CeilDiv(k, CeilDiv(k, kMostDepth)), 16);
    strip_rows = kStripTiles * kernels.tile_rows;
    num_row_blocks = CeilDiv(m, kMostRows);
    block_rows = CeilDiv(m, num_row_blocks);
    // As many blocks as give each thread as many.
    const int64_t blocks = RoundUp(num_row_blocks * CeilDiv(n, kMostColumns), num_threads);
    block_columns = RoundUp(CeilDiv(n, CeilDiv(blocks, num_row_blocks)), kernels.panel_columns);
    num_column_blocks = CeilDiv(n, block_columns);
    b_bytes = Bytes(block_columns * depth);
    a_bytes = Bytes(std::min(strip_rows, block_rows) * kPackedRow);
    sums_bytes = args.c.dtype() == DType::kBFloat16 && depth < k ? Bytes(block_rows * block_columns) : 0;
  }
  int64_t thread_bytes() const { return b_bytes + a_bytes + sums_bytes; }

  shapes::MatmulSizes sizes;
  int64_t depth;  // of a block of k
  int64_t strip_rows;
  int64_t block_rows, block_columns, num_row_blocks, num_column_blocks;
  int64_t b_bytes, a_bytes, sums_bytes;
};

// Rows and columns `rows` and `columns` of C.
void MultiplyBlock(const VectorKernels& kernels, const Plan& plan, const MatmulArgs& args, Range rows,
                   Range columns, char* scratch) {
  float* const b = reinterpret_cast<float*>(scratch);
  float* const a = reinterpret_cast<float*>(scratch + plan.b_bytes);
  float* const sums = reinterpret_cast<float*>(scratch + plan.b_bytes + plan.a_bytes);
  const bool c_is_bf16 = args.c.dtype() == DType::kBFloat16;
  for (int64_t k = 0; k < plan.sizes.k; k += plan.depth) {
    const bool is_first = k == 0, is_last = k + plan.depth >= plan.sizes.k;
    const int64_t depth = std::min(plan.depth, plan.sizes.k - k);
    kernels.pack_b(Part(args.b, args.transpose_b, columns.begin, k), columns.size(), depth, b);
    for (int64_t row = rows.begin; row < rows.end; row += plan.strip_rows) {
      VectorBlock block;
      block.a = a;
      block.b = b;
      block.rows = std::min(plan.strip_rows, rows.end - row);
      block.columns = columns.size();
      block.depth = depth;
      block.c =
          static_cast<char*>(args.c.raw()) + (row * plan.sizes.n + columns.begin) * SizeOf(args.c.dtype());
      block.c_stride = plan.sizes.n;
      block.c_is_bf16 = c_is_bf16;
      float* const so_far =
          c_is_bf16 ? sums + (row - rows.begin) * plan.block_columns : static_cast<float*>(block.c);
      const int64_t so_far_stride = c_is_bf16 ? plan.block_columns : plan.sizes.n;
      if (!is_first || args.accumulate) {
        block.add = so_far;
        block.add_stride = so_far_stride;
      }
      if (!is_last) {
        block.c = so_far;
        block.c_stride = so_far_stride;
        block.c_is_bf16 = false;
      }
      kernels.pack_a(Part(args.a, !args.transpose_a, row, k), block.rows, depth, a);
      kernels.multiply(block);
    }
  }
}

}  // namespace

int64_t VectorMatmulWorkspace(CpuTarget target, const MatmulArgs& args, int num_threads) {
  return num_threads * Plan(KernelsOf(target), args, num_threads).thread_bytes();
}

void VectorMatmul(CpuTarget target, int num_threads, const MatmulArgs& args, Tensor workspace) {
  const VectorKernels& kernels = KernelsOf(target);
  const Plan plan(kernels, args, num_threads);
  ParallelTasks(num_threads, plan.num_row_blocks * plan.num_column_blocks, [&](int64_t i, int thread) {
    const int64_t row = i / plan.num_column_blocks * plan.block_rows;
    const int64_t column = i % plan.num_column_blocks * plan.block_columns;
    MultiplyBlock(kernels, plan, args, {row, std::min(plan.sizes.m, row + plan.block_rows)},
                  {column, std::min(plan.sizes.n, column + plan.block_columns)},
                  static_cast<char*>(workspace.raw()) + thread * plan.thread_bytes());
  });
}

}  // namespace longspan::cpu
