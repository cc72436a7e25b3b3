// report.html: a run as a page that needs nothing but itself.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "train/job.h"
#include "train/metrics.h"

namespace longspan {

// What the first rank knows of itself at this point of a run.
struct RankReport {
  std::map<std::string, int64_t> memory;           // what its device holds at most, bytes by name
  std::map<std::string, double> traced_seconds{};  // of traced steps, by operation; empty: none was traced
};

// Loss, gradient norm, MFU, step time by part and memory over the run's `steps` so far, at least one;
// `recipe` is the run's keys as YAML.
std::string RunPage(const Job& job, std::span<const StepMetrics> steps, const RankReport& rank,
                    const std::string& recipe);

}  // namespace longspan
