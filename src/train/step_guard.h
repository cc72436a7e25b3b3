// StepGuard: which steps leave the weights as they were (skip_step_on_spikes).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "train/train_config.h"

namespace longspan {

// What a step is judged by, and a later one against: both finite.
struct StepSample {
  double loss = 0;       // mean over its targets
  double grad_norm = 0;  // before clipping
  friend bool operator==(const StepSample&, const StepSample&) = default;
};

// A spike is a loss or gradient norm that exceeds the mean over the last skip_step_interval steps by more
// than skip_step_scaling_factor standard deviations (of a sample: n − 1). As in MaxText a spike counts among
// those steps itself, so that a new level becomes the usual one, and nothing is a spike before there is half
// an interval to judge by; but at least two steps, since one has no deviation, and norms are those before
// clipping, which hides spikes.
//
// All ranks judge alike: they have the same samples.
class StepGuard {
 public:
  explicit StepGuard(const TrainConfig& config);

  // Why a step is skipped, "loss 9.1 is 7.3 standard deviations above the mean of the last 128 steps"; empty:
  // it is not. Remembers it.
  std::string Judge(const StepSample& step);
  // Whether a step whose loss or gradient is not finite is skipped, rather than the end of the run.
  bool skips_nan() const { return skips_nan_; }

  // The last steps, the oldest first: what the next ones depend on. None where spikes are not looked for.
  std::vector<StepSample> samples() const { return {samples_.begin(), samples_.end()}; }
  void Restore(std::span<const StepSample> samples);

 private:
  const bool skips_spikes_, skips_nan_;
  const size_t interval_;
  const double scaling_factor_;
  std::deque<StepSample> samples_;
};

}  // namespace longspan
