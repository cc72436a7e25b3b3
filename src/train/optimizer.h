// The update: norm, clipping, AdamW or SGD on the resident weights.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "train/train_config.h"
#include "train/weights.h"

namespace longspan {

class Optimizer {
 public:
  static ResidentWeights::Moments MomentsOf(const TrainConfig& config);

  Optimizer(const TrainConfig& config, Backend& backend, ResidentWeights& weights)
      : config_(config), backend_(backend), weights_(weights) {}

  void ZeroGradients();
  // ‖gradient‖₂ of the whole model, f64; every parameter counts once.
  double GradientNorm();
  // One update with the gradients in the weight store, scaled down to gradient_clipping_threshold if
  // `gradient_norm` exceeds it. Also refreshes the compute weights.
  void Update(double learning_rate, double gradient_norm);

  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t n) { num_updates_ = n; }

 private:
  const TrainConfig& config_;
  Backend& backend_;
  ResidentWeights& weights_;
  int64_t num_updates_ = 0;
};

}  // namespace longspan
