// Sums over rows, as gradients of gains and biases are. Each block of rows sums from zero, and after so many
// blocks their sums are added to the total: the error then grows with the number of rounds, not of rows, and
// the workspace is bounded.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace longspan::cpu {

inline constexpr int64_t kSumBlockRows = 64;
inline constexpr int64_t kSumBlocksPerRound = 32;

// Bytes for SumRows.
inline int64_t RowSumsWorkspace(int64_t rows, int64_t width) {
  const int64_t blocks = std::min(kSumBlocksPerRound, (rows + kSumBlockRows - 1) / kSumBlockRows);
  return blocks * width * SizeOf(DType::kFloat32);
}

// total (width) += what add(begin, end, sum) adds to `sum` (width) for each block of rows. The order does not
// depend on the number of threads.
template <class Add>
void SumRows(Threads threads, int64_t rows, int64_t width, Tensor workspace, float* total, const Add& add) {
  float* const partial = static_cast<float*>(workspace.raw());
  const auto add_to = threads.kernels.f32.accumulate;
  constexpr int64_t kRowsPerRound = kSumBlockRows * kSumBlocksPerRound;
  for (int64_t first = 0; first < rows; first += kRowsPerRound) {
    const int64_t round = std::min(kRowsPerRound, rows - first);
    ParallelBlocks(threads.num, round, kSumBlockRows, [&](int64_t begin, int64_t end) {
      float* sum = partial + begin / kSumBlockRows * width;
      std::fill(sum, sum + width, 0.0f);
      add(first + begin, first + end, sum);
    });
    for (int64_t block = 1; block * kSumBlockRows < round; ++block)
      add_to(partial + block * width, partial, width);
    add_to(partial, total, width);
  }
}

}  // namespace longspan::cpu
