// Weights in memory, replicated on every rank: the resident WeightStore, and the optimizer's state beside it.
#pragma once

#include <span>
#include <vector>

#include "model/params.h"
#include "model/weight_store.h"

namespace longspan {

// One flat f32 tensor per unit for master weights, gradients and moments; compute weights are the master itself
// (float32) or a bf16 copy.
class ResidentWeights final : public WeightStore {
 public:
  enum class Moments { kNone, kAdam };  // SGD keeps none

  ResidentWeights(const ParamTable& table, DType compute_dtype, Moments moments);

  void Prefetch(int) override {}
  std::span<const Tensor> Get(int unit) override { return units_[static_cast<size_t>(unit)].compute_views; }
  void Release(int) override {}
  std::span<const Tensor> Grad(int unit) override { return units_[static_cast<size_t>(unit)].grad_views; }
  void GradReady(int) override {}

  const ParamTable& table() const { return table_; }
  // Flat (num_elements of the unit) f32.
  Tensor Master(int unit) const { return units_[static_cast<size_t>(unit)].master.tensor(); }
  Tensor FlatGrad(int unit) const { return units_[static_cast<size_t>(unit)].grad.tensor(); }
  Tensor ExpAvg(int unit) const { return units_[static_cast<size_t>(unit)].exp_avg.tensor(); }      // null for SGD
  Tensor ExpAvgSq(int unit) const { return units_[static_cast<size_t>(unit)].exp_avg_sq.tensor(); }  // null for SGD
  // bf16, or null where the master is what the model reads.
  Tensor Compute(int unit) const { return units_[static_cast<size_t>(unit)].compute.tensor(); }

  void Initialize(double initializer_range, uint64_t seed);
  // Rounds the masters into the compute weights; after loading or initialising them.
  void RefreshCompute();

  int64_t weights_bytes() const;   // master + compute copy
  int64_t grads_bytes() const;
  int64_t moments_bytes() const;

 private:
  struct Unit {
    Buffer master, grad, exp_avg, exp_avg_sq, compute;
    std::vector<Tensor> compute_views, grad_views;
  };
  ParamTable table_;
  std::vector<Unit> units_;
};

}  // namespace longspan
