#include "train/optimizer.h"

#include <cmath>

namespace longspan {

ShardedWeights::Moments Optimizer::MomentsOf(const TrainConfig& config) {
  return config.opt_type == "sgd" ? ShardedWeights::Moments::kNone : ShardedWeights::Moments::kAdam;
}

double Optimizer::GradientNorm() {
  weights_.PrefetchState(0);
  return std::sqrt(weights_.GradientSumOfSquares());
}

void Optimizer::Update(double learning_rate, double gradient_norm) {
  const double threshold = config_.gradient_clipping_threshold;
  const double scale = threshold > 0 && gradient_norm > threshold ? threshold / gradient_norm : 1.0;
  ++num_updates_;
  weights_.ForEachState(
      [&](int unit, const UnitState& state) { UpdateUnit(unit, state, learning_rate, scale); });
}

void Optimizer::UpdateUnit(int unit, const UnitState& state, double learning_rate, double scale) {
  const Range kept = weights_.Kept(unit);
  for (const ParamRow& row : weights_.table().units[static_cast<size_t>(unit)].rows) {
    const Range elements = weights_.Kept(unit, {row.offset, row.offset + row.num_elements});
    if (!row.trainable || elements.empty()) continue;
    const auto part = [&](const Tensor& shard) {
      return shard.IsNull() ? shard : shard.Rows(elements.begin - kept.begin, elements.end - kept.begin);
    };
    const Tensor grad = part(weights_.FlatGrad(unit)), master = part(state.master);
    const Tensor compute = part(state.compute);
    if (config_.opt_type == "sgd") {
      backend_.Sgd(learning_rate, scale, grad, master, compute);
      continue;
    }
    AdamWArgs args;
    args.learning_rate = learning_rate;
    args.beta1 = config_.adam_b1;
    args.beta2 = config_.adam_b2;
    args.epsilon = config_.adam_eps;
    args.weight_decay = row.decays ? config_.adam_weight_decay : 0.0;
    args.grad_scale = scale;
    args.step = num_updates_;
    backend_.AdamW(args, grad, master, part(state.exp_avg), part(state.exp_avg_sq), compute);
  }
  weights_.Changed(unit);
}

}  // namespace longspan
