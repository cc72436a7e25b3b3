#include <cmath>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace longspan::cpu {
namespace {

constexpr int64_t kNormBlock = 4096;  // elements: part of the interface, as shards are cut at its multiples
constexpr int64_t kBlocksPerRound = 4096;  // bounds the workspace of a norm
constexpr int64_t kUpdateBlock =
    16384;  // elements: short enough that the bf16 copy reads master from the L2 cache

// Runs update(begin, end) over blocks, and rounds what it wrote to master to `compute`, if there is one.
template <class Update>
void UpdateBlocks(Threads threads, const Tensor& master, const Tensor& compute, const Update& update) {
  const float* weights = master.data<float>();
  BFloat16* rounded = compute.IsNull() ? nullptr : compute.data<BFloat16>();
  ParallelBlocks(threads.num, master.num_elements(), kUpdateBlock, [&](int64_t begin, int64_t end) {
    update(begin, end - begin);
    if (rounded != nullptr) threads.kernels.to_bf16(weights + begin, rounded + begin, end - begin);
  });
}

}  // namespace

int64_t SumOfSquaresWorkspace(const Tensor& x) {
  const int64_t blocks = (x.num_elements() + kNormBlock - 1) / kNormBlock;
  return std::min(blocks, kBlocksPerRound) * static_cast<int64_t>(sizeof(double));
}

double SumOfSquares(Threads threads, Tensor x, Tensor workspace) {
  const float* data = x.data<float>();
  double* const sums = static_cast<double*>(workspace.raw());
  const auto sum_of_squares = threads.kernels.sum_of_squares;
  constexpr int64_t kRound = kNormBlock * kBlocksPerRound;
  double total = 0;
  for (int64_t first = 0; first < x.num_elements(); first += kRound) {
    const int64_t size = std::min(kRound, x.num_elements() - first);
    ParallelBlocks(threads.num, size, kNormBlock, [&](int64_t begin, int64_t end) {
      sums[begin / kNormBlock] = sum_of_squares(data + first + begin, end - begin);
    });
    for (int64_t block = 0; block * kNormBlock < size; ++block) total += sums[block];
  }
  return total;
}

void AdamW(Threads threads, const AdamWArgs& args, Tensor grad, Tensor master, Tensor exp_avg,
           Tensor exp_avg_sq, Tensor compute) {
  const double step = static_cast<double>(args.step);
  const double correction1 = 1 - std::pow(args.beta1, step), correction2 = 1 - std::pow(args.beta2, step);
  const AdamWFactors factors = {.grad_scale = static_cast<float>(args.grad_scale),
                                .beta1 = static_cast<float>(args.beta1),
                                .one_minus_beta1 = static_cast<float>(1 - args.beta1),
                                .beta2 = static_cast<float>(args.beta2),
                                .one_minus_beta2 = static_cast<float>(1 - args.beta2),
                                .step_size = static_cast<float>(args.learning_rate / correction1),
                                .inverse_root_c2 = static_cast<float>(1 / std::sqrt(correction2)),
                                .epsilon = static_cast<float>(args.epsilon),
                                .decay = static_cast<float>(1 - args.learning_rate * args.weight_decay)};
  const float* g = grad.data<float>();
  float *w = master.data<float>(), *m = exp_avg.data<float>(), *v = exp_avg_sq.data<float>();
  UpdateBlocks(threads, master, compute, [&](int64_t begin, int64_t n) {
    threads.kernels.adamw(factors, g + begin, w + begin, m + begin, v + begin, n);
  });
}

void Sgd(Threads threads, double learning_rate, double grad_scale, Tensor grad, Tensor master,
         Tensor compute) {
  const float rate = static_cast<float>(learning_rate * grad_scale);
  const float* g = grad.data<float>();
  float* w = master.data<float>();
  UpdateBlocks(threads, master, compute,
               [&](int64_t begin, int64_t n) { threads.kernels.sgd(rate, g + begin, w + begin, n); });
}

}  // namespace longspan::cpu
