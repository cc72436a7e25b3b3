// A whole training step, by the trainer that `longspan train` runs, on random tokens and random weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/report.h"
#include "model/config.h"
#include "train/metrics.h"

namespace longspan::bench {

struct StepCase {
  std::string name;
  ModelConfig model;
  DType dtype = DType::kBFloat16;
  int64_t length = 0;  // T; one sequence a step
  int64_t ranks = 1, threads_per_rank = 1;
  std::string strategy = "ring";
  int64_t ulysses = 0;  // ranks in a head group; 0: the strategy's default
};

// Of some steps of a case. The peak is that of as many cores as the ranks' threads can use.
struct MeasuredSteps {
  std::vector<StepMetrics> steps;
  CpuPeak peak;  // best of bursts before and after
};
// `num_steps` from the initial weights. The first also touches the memory for the first time. Throws Error.
MeasuredSteps RunSteps(const StepCase& step, int64_t num_steps);

// A row of the report: seconds are those of one step.
Case StepRow(const StepCase& step, const StepMetrics& metrics, const Measured& seconds);

}  // namespace longspan::bench
