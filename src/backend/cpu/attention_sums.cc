// Sums over the rows of attention: the gradients of learned sinks, and the mean key. Blocks of rows are
// summed apart and their sums added in order, in f64, so neither the number of rows nor that of threads
// shows.
#include <cmath>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace longspan::cpu {
namespace {

constexpr int64_t kBlockRows = 256;
constexpr int64_t kBlocksPerRound = 64;  // bounds the workspace

// Of totals, f64, and of the sums of a round's blocks, `block_bytes` each.
int64_t Workspace(int64_t width, int64_t block_bytes) {
  return width * static_cast<int64_t>(sizeof(double)) + kBlocksPerRound * block_bytes;
}

// totals[i] = Σ over blocks of what sum_block(block, sums) writes to sums[i], i < width. S is the type of the
// sums of a block.
template <class S, class SumBlock>
void SumBlocks(Threads threads, int64_t num_blocks, int64_t width, double* totals,
               const SumBlock& sum_block) {
  S* const sums = reinterpret_cast<S*>(totals + width);
  std::fill(totals, totals + width, 0.0);
  for (int64_t first = 0; first < num_blocks; first += kBlocksPerRound) {
    const int64_t round = std::min(kBlocksPerRound, num_blocks - first);
    ParallelFor(threads.num, round, [&](int64_t i) {
      std::fill(sums + i * width, sums + (i + 1) * width, S{0});
      sum_block(first + i, sums + i * width);
    });
    for (int64_t i = 0; i < round * width; ++i) totals[i % width] += static_cast<double>(sums[i]);
  }
}

}  // namespace

int64_t AttentionSinksBackwardWorkspace(const Tensor& lse) {
  return Workspace(lse.dim(1), lse.dim(1) * static_cast<int64_t>(sizeof(double)));
}

void AttentionSinksBackward(Threads threads, Tensor sinks, Tensor lse, Tensor delta, Tensor dsinks,
                            Tensor workspace) {
  const int64_t rows = lse.dim(0), heads = lse.dim(1);
  double* const totals = static_cast<double*>(workspace.raw());
  SumBlocks<double>(
      threads, (rows + kBlockRows - 1) / kBlockRows, heads, totals, [&](int64_t block, double* sums) {
        for (int64_t row = block * kBlockRows; row < std::min(rows, (block + 1) * kBlockRows); ++row)
          for (int64_t h = 0; h < heads; ++h) {
            const double l = static_cast<double>(lse.data<float>()[row * heads + h]);
            if (std::isinf(l) && l < 0) continue;
            sums[h] += std::exp(static_cast<double>(sinks.data<float>()[h]) - l) *
                       static_cast<double>(delta.data<float>()[row * heads + h]);
          }
      });
  for (int64_t h = 0; h < heads; ++h) dsinks.data<float>()[h] -= static_cast<float>(totals[h]);
}

int64_t MeanOfRowsWorkspace(const Tensor& mean) {
  return Workspace(mean.num_elements(), mean.num_elements() * SizeOf(DType::kFloat32));
}

void MeanOfRows(Threads threads, Tensor x, std::span<const Range> rows, int64_t num_rows, Tensor mean,
                Tensor workspace) {
  const int64_t width = mean.num_elements();
  double* const totals = static_cast<double*>(workspace.raw());
  std::vector<Range> blocks;
  for (const Range& range : rows)
    for (int64_t begin = range.begin; begin < range.end; begin += kBlockRows)
      blocks.push_back({begin, std::min(range.end, begin + kBlockRows)});
  WithFloatType(x.dtype(), [&]<class T>(T*) {
    const auto accumulate = threads.kernels.For<T>().accumulate;
    SumBlocks<float>(threads, static_cast<int64_t>(blocks.size()), width, totals,
                     [&](int64_t block, float* sums) {
                       const Range& range = blocks[static_cast<size_t>(block)];
                       for (int64_t row = range.begin; row < range.end; ++row)
                         accumulate(x.data<T>() + row * width, sums, width);
                     });
  });
  for (int64_t i = 0; i < width; ++i)
    mean.data<float>()[i] =
        blocks.empty() ? 0 : static_cast<float>(totals[i] / static_cast<double>(num_rows));
}

}  // namespace longspan::cpu
