// Weights in memory, replicated on every rank: the resident WeightStore, and the optimizer's state beside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/arena.h"
#include "model/params.h"
#include "model/weight_store.h"

namespace longspan {

// One flat f32 tensor per unit for master weights, gradients and moments; compute weights are the master
// itself (float32) or a bf16 copy. Everything starts as zero.
class ResidentWeights final : public WeightStore {
 public:
  enum class Moments { kNone, kAdam };  // SGD keeps none

  // In measure mode the tensors have addresses and sizes but no memory: for dry runs.
  ResidentWeights(const ParamTable& table, DType compute_dtype, Moments moments,
                  Arena::Mode mode = Arena::Mode::kReal);

  void Prefetch(int) override {}
  std::span<const Tensor> Get(int unit) override { return At(unit).compute_views; }
  void Release(int) override {}
  std::span<const Tensor> Grad(int unit) override { return At(unit).grad_views; }
  void GradReady(int) override {}

  const ParamTable& table() const { return table_; }
  // Flat (num_elements of the unit) f32. The moments are null for SGD.
  Tensor Master(int unit) const { return At(unit).master; }
  Tensor FlatGrad(int unit) const { return At(unit).grad; }
  Tensor ExpAvg(int unit) const { return At(unit).exp_avg; }
  Tensor ExpAvgSq(int unit) const { return At(unit).exp_avg_sq; }
  // bf16, or null where the master is what the model reads.
  Tensor Compute(int unit) const { return At(unit).compute; }

  void Initialize(double initializer_range, uint64_t seed);
  // Rounds the masters into the compute weights; after loading or initialising them.
  void RefreshCompute();

  // Bytes by name: "weights", "weights.compute", "gradients", "optimizer".
  const Arena& memory() const { return arena_; }

 private:
  struct Unit {
    Tensor master, grad, exp_avg, exp_avg_sq, compute;
    std::vector<Tensor> compute_views, grad_views;
  };
  const Unit& At(int unit) const { return units_[static_cast<size_t>(unit)]; }

  Arena arena_;
  ParamTable table_;
  std::vector<Unit> units_;
};

}  // namespace longspan
