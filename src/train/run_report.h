// report.html: a run as a page that needs nothing but itself.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "train/job.h"
#include "train/metrics.h"

namespace longspan {

// Loss, gradient norm, MFU, step time by part and memory over the run's `steps` so far, at least one;
// `memory` is what a rank's device holds at most, by name, and `recipe` the run's keys as YAML.
std::string RunPage(const Job& job, std::span<const StepMetrics> steps,
                    const std::map<std::string, int64_t>& memory, const std::string& recipe);

}  // namespace longspan
