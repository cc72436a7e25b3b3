// Weights in memory, replicated on every rank: the resident WeightStore, and the optimizer's state beside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/params.h"
#include "model/weight_store.h"

namespace longspan {

// One flat f32 tensor per unit for master weights, gradients and moments; compute weights are the master
// itself (float32) or a bf16 copy. Everything starts as zero. Matrices are also there in the form that the
// backend's products read, if it has one: packed once an update rather than in every product of each
// micro-step.
class ResidentWeights final : public WeightStore {
 public:
  // What is there besides weights: nothing (they are only run), gradients (SGD), gradients and AdamW's
  // moments.
  enum class Moments { kNoGradients, kNone, kAdam };

  // For the products of `backend`, which outlives this; a dry one's weights have addresses and sizes but no
  // memory. Null: there will be none, the weights are only loaded or saved.
  ResidentWeights(const ParamTable& table, DType compute_dtype, Moments moments, Backend* backend = nullptr);

  void Prefetch(int) override {}
  std::span<const Weight> Get(int unit) override { return At(unit).weights; }
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
  // Rounds the masters into the compute weights and packs these; after loading or initialising them.
  void RefreshCompute();
  // Packs a unit's compute weights; after they were updated.
  void Pack(int unit);

  // Bytes by name: "weights", "weights.compute", "weights.packed", "gradients", "optimizer".
  const Arena& memory() const { return arena_; }

 private:
  struct Unit {
    Tensor master, grad, exp_avg, exp_avg_sq, compute;
    std::vector<Weight> weights;
    std::vector<Tensor> grad_views;
  };
  const Unit& At(int unit) const { return units_[static_cast<size_t>(unit)]; }
  int NumThreads() const { return backend_ == nullptr ? 1 : backend_->num_threads(); }

  Backend* backend_;
  Arena arena_;
  ParamTable table_;
  std::vector<Unit> units_;
};

}  // namespace longspan
