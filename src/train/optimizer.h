// The update: clipping, AdamW or SGD on what this rank keeps of the weights.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "train/train_config.h"
#include "train/weights.h"

namespace longspan {

class Optimizer {
 public:
  static ShardedWeights::Moments MomentsOf(const TrainConfig& config);

  Optimizer(const TrainConfig& config, Backend& backend, ShardedWeights& weights)
      : config_(config), backend_(backend), weights_(weights) {}

  // ‖gradient‖₂ of the whole model, f64; every parameter counts once. Collective. An update follows.
  double GradientNorm();
  // One update with the gradients in the weight store, scaled down to gradient_clipping_threshold if
  // `gradient_norm` exceeds it. Also of the compute weights.
  void Update(double learning_rate, double gradient_norm);

  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t n) { num_updates_ = n; }

 private:
  void UpdateUnit(int unit, const UnitState& state, double learning_rate, double scale);

  const TrainConfig& config_;
  Backend& backend_;
  ShardedWeights& weights_;
  int64_t num_updates_ = 0;
};

}  // namespace longspan
