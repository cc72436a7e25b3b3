// Trainer: the whole run, and the step on one screen.
#pragma once

#include <string>

#include "comm/comm.h"
#include "train/job.h"

namespace longspan {

// Runs the job on job.mesh.ranks() thread ranks of this process: start report, steps, evaluation,
// checkpoints. `config_yaml` is job.config as a recipe, for config.yml. Throws Error; what was saved before
// stays.
void Train(const Job& job, const std::string& config_yaml);

}  // namespace longspan
