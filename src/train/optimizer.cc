#include "train/optimizer.h"

#include <cmath>

namespace longspan {

ResidentWeights::Moments Optimizer::MomentsOf(const TrainConfig& config) {
  return config.opt_type == "sgd" ? ResidentWeights::Moments::kNone : ResidentWeights::Moments::kAdam;
}

void Optimizer::ZeroGradients() {
  for (int unit = 0; unit < weights_.table().num_units(); ++unit) backend_.Zero(weights_.FlatGrad(unit));
}

double Optimizer::GradientNorm() {
  double sum = 0;  // gaps between parameters are zero
  for (int unit = 0; unit < weights_.table().num_units(); ++unit)
    sum += backend_.SumOfSquares(weights_.FlatGrad(unit));
  return std::sqrt(sum);
}

void Optimizer::Update(double learning_rate, double gradient_norm) {
  const double threshold = config_.gradient_clipping_threshold;
  const double scale = threshold > 0 && gradient_norm > threshold ? threshold / gradient_norm : 1.0;
  ++num_updates_;
  for (int unit = 0; unit < weights_.table().num_units(); ++unit) {
    for (const ParamRow& row : weights_.table().units[static_cast<size_t>(unit)].rows) {
      if (!row.trainable) continue;
      const auto part = [&](const Tensor& flat) {
        return flat.IsNull() ? flat : flat.Rows(row.offset, row.offset + row.num_elements);
      };
      const Tensor grad = part(weights_.FlatGrad(unit)), master = part(weights_.Master(unit));
      const Tensor compute = part(weights_.Compute(unit));
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
      backend_.AdamW(args, grad, master, part(weights_.ExpAvg(unit)), part(weights_.ExpAvgSq(unit)), compute);
    }
    weights_.Pack(unit);
  }
}

}  // namespace longspan
