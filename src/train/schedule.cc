#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace longspan {

double LearningRate(const TrainConfig& config, int64_t step) {
  const int64_t total = config.learning_rate_schedule_steps;
  const int64_t warmup = static_cast<int64_t>(config.warmup_steps_fraction * static_cast<double>(total));
  const double peak = config.learning_rate, last = peak * config.learning_rate_final_fraction;
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);

  // How far the decay, which takes the last `decay` steps, has come: 0 … 1.
  const auto progress = [&](int64_t decay) {
    if (decay <= 0) return step < total ? 0.0 : 1.0;
    return std::clamp(static_cast<double>(step - (total - decay)) / static_cast<double>(decay), 0.0, 1.0);
  };
  if (config.lr_schedule_type == "constant") return peak;
  if (config.lr_schedule_type == "cosine")
    return last + (peak - last) * 0.5 * (1 + std::cos(std::numbers::pi * progress(total - warmup)));
  CHECK(config.lr_schedule_type == "wsd");
  const int64_t decay = static_cast<int64_t>(config.wsd_decay_steps_fraction * static_cast<double>(total));
  return peak + (last - peak) * progress(std::min(decay, total - warmup));
}

}  // namespace longspan
