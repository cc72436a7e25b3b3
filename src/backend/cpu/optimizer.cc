#include <cmath>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace longspan::cpu {
namespace {

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

void SumsOfSquares(Threads threads, Tensor x, Tensor sums) {
  const float* data = x.data<float>();
  double* const out = static_cast<double*>(sums.raw());
  ParallelBlocks(threads.num, x.num_elements(), Backend::kNormBlock, [&](int64_t begin, int64_t end) {
    out[begin / Backend::kNormBlock] = threads.kernels.sum_of_squares(data + begin, end - begin);
  });
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
