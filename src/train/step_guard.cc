#include "train/step_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/format.h"

namespace longspan {
namespace {

struct Level {
  double mean = 0, deviation = 0;
};

Level LevelOf(const std::deque<StepSample>& samples, double StepSample::*what) {
  const double n = static_cast<double>(samples.size());
  Level level;
  for (const StepSample& sample : samples) level.mean += sample.*what / n;
  double squares = 0;
  for (const StepSample& sample : samples)
    squares += (sample.*what - level.mean) * (sample.*what - level.mean);
  level.deviation = std::sqrt(squares / (n - 1));
  return level;
}

}  // namespace

StepGuard::StepGuard(const TrainConfig& config)
    : skips_spikes_(config.skip_step_on_spikes),
      skips_nan_(config.skip_step_on_nan),
      interval_(static_cast<size_t>(config.skip_step_interval)),
      scaling_factor_(config.skip_step_scaling_factor) {}

std::string StepGuard::Judge(const StepSample& step) {
  if (!skips_spikes_) return "";
  std::string why;
  const size_t least = std::max<size_t>(2, interval_ / 2 - 1);
  const auto judge = [&](const char* name, double StepSample::*what) {
    const Level usual = LevelOf(samples_, what);
    const double above = step.*what - usual.mean;
    if (above <= scaling_factor_ * usual.deviation || !why.empty()) return;
    why = fmt::format("{} {:.5g} is {:.1f} standard deviations above the mean of the last {}", name,
                      step.*what, above / usual.deviation, Plural(std::ssize(samples_), "step"));
  };
  if (samples_.size() >= least) {
    judge("loss", &StepSample::loss);
    judge("gradient norm", &StepSample::grad_norm);
  }
  samples_.push_back(step);
  if (samples_.size() > interval_) samples_.pop_front();
  return why;
}

void StepGuard::Restore(std::span<const StepSample> samples) {
  samples_.clear();
  if (!skips_spikes_) return;
  const size_t kept = std::min(samples.size(), interval_);
  samples_.assign(samples.end() - static_cast<std::ptrdiff_t>(kept), samples.end());
}

}  // namespace longspan
