#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "core/target.h"

namespace longspan::cpu {
namespace {

// Losses are summed in f64 within blocks of rows, and the blocks' sums in order.
constexpr int64_t kBlockRows = 16;

int64_t NumBlocks(int64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

// A target outside the vocabulary would read anywhere.
const int32_t* CheckedTargets(const Tensor& targets, int64_t vocabulary) {
  const int32_t* data = targets.data<int32_t>();
  for (int64_t row = 0; row < targets.num_elements(); ++row) {
    CHECK(data[row] == kIgnoreTarget || (data[row] >= 0 && data[row] < vocabulary));
  }
  return data;
}

// Calls row(index) → loss for each row, and returns the sum.
template <class Row>
double SumRows(Threads threads, int64_t rows, Tensor workspace, const Row& row) {
  double* const sums = static_cast<double*>(workspace.raw());
  ParallelBlocks(threads.num, rows, kBlockRows, [&](int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += row(i);
    sums[begin / kBlockRows] = sum;
  });
  double total = 0;
  for (int64_t block = 0; block < NumBlocks(rows); ++block) total += sums[block];
  return total;
}

double RowLoss(const LogSumExp& lse, float target_logit) {
  return std::log(lse.sum) + (static_cast<double>(lse.max) - static_cast<double>(target_logit));
}

constexpr int64_t kCapBlock = int64_t{1} << 14;  // elements

}  // namespace

void SoftCap(Threads threads, float cap, Tensor logits) {
  float* data = logits.data<float>();
  ParallelBlocks(threads.num, logits.num_elements(), kCapBlock, [&](int64_t begin, int64_t end) {
    threads.kernels.soft_cap(cap, data + begin, end - begin);
  });
}

void SoftCapBackward(Threads threads, Tensor capped, float cap, Tensor dlogits) {
  const float* y = capped.data<float>();
  WithFloatType(dlogits.dtype(), [&]<class T>(T*) {
    T* gradient = dlogits.data<T>();
    const auto backward = threads.kernels.For<T>().soft_cap_backward;
    ParallelBlocks(threads.num, capped.num_elements(), kCapBlock, [&](int64_t begin, int64_t end) {
      backward(y + begin, cap, gradient + begin, end - begin);
    });
  });
}

int64_t CrossEntropyWorkspace(const Tensor& logits) {
  return NumBlocks(logits.dim(0)) * static_cast<int64_t>(sizeof(double));
}

double CrossEntropy(Threads threads, Tensor logits, Tensor targets, Tensor workspace) {
  const int64_t width = logits.dim(1);
  const int32_t* target = CheckedTargets(targets, width);
  const float* data = logits.data<float>();
  return SumRows(threads, logits.dim(0), workspace, [&](int64_t row) {
    if (target[row] == kIgnoreTarget) return 0.0;
    const float* x = data + row * width;
    return RowLoss(threads.kernels.log_sum_exp(x, width), x[target[row]]);
  });
}

void TokenLosses(Threads threads, Tensor logits, Tensor targets, Tensor losses, Tensor argmax) {
  const int64_t width = logits.dim(1);
  const int32_t* target = CheckedTargets(targets, width);
  const float* data = logits.data<float>();
  float* const loss = losses.data<float>();
  int32_t* const greedy = argmax.data<int32_t>();
  ParallelBlocks(threads.num, logits.dim(0), kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = data + row * width;
      const LogSumExp lse = threads.kernels.log_sum_exp(x, width);
      loss[row] = target[row] == kIgnoreTarget ? 0.0f : static_cast<float>(RowLoss(lse, x[target[row]]));
      const float max = lse.max;
      const float* const first =
          std::find_if(x, x + width, [max](float v) { return v >= max || std::isnan(v); });
      greedy[row] = static_cast<int32_t>(first - x);
      DCHECK(greedy[row] < width);
    }
  });
}

double CrossEntropyBackward(Threads threads, Tensor logits, Tensor targets, float scale, Tensor dlogits,
                            Tensor workspace) {
  const int64_t width = logits.dim(1);
  const int32_t* target = CheckedTargets(targets, width);
  const float* data = logits.data<float>();
  double loss = 0;
  WithFloatType(dlogits.dtype(), [&]<class T>(T*) {
    T* const gradient = dlogits.data<T>();
    const auto scaled_exp = threads.kernels.For<T>().scaled_exp;
    loss = SumRows(threads, logits.dim(0), workspace, [&](int64_t row) {
      const float* x = data + row * width;
      T* dx = gradient + row * width;
      if (target[row] == kIgnoreTarget) {
        std::memset(static_cast<void*>(dx), 0, static_cast<size_t>(width) * sizeof(T));
        return 0.0;
      }
      const LogSumExp lse = threads.kernels.log_sum_exp(x, width);
      const double factor = static_cast<double>(scale) / lse.sum;
      scaled_exp(x, lse.max, static_cast<float>(factor), dx, width);
      // The target's own, (p − 1) · scale, from the loss: a bf16 p would be rounded before the subtraction.
      const double row_loss = RowLoss(lse, x[target[row]]);
      dx[target[row]] = T(static_cast<float>(std::expm1(-row_loss) * static_cast<double>(scale)));
      return row_loss;
    });
  });
  return loss;
}

}  // namespace longspan::cpu
