// Trainer: the whole run, and the step on one screen.
#pragma once

#include <string>
#include <vector>

#include "train/job.h"
#include "train/metrics.h"

namespace longspan {

// Runs the job on job.mesh.ranks() thread ranks of this process: start report, steps, evaluation,
// checkpoints. `config_yaml` is job.config as a recipe, for config.yml. Throws Error; what was saved before
// stays.
void Train(const Job& job, const std::string& config_yaml);

// The job's steps from its initial weights, with nothing read, shown or written: what each measured. MFU is
// against `peak_flops`, FLOP/s; 0: none. Throws Error, also where the machine's memory is not enough.
std::vector<StepMetrics> MeasureSteps(const Job& job, double peak_flops);

}  // namespace longspan
