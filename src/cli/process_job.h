// A recipe on ranks that are processes: what they agree on before the first step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/hosts.h"
#include "train/job.h"

namespace longspan {

struct ProcessJob {
  Job job;
  std::string recipe;       // of job.config, with nothing left open
  std::vector<Host> hosts;  // of the ranks
};

// This rank's, of its configuration. What that leaves open `resolve` chooses, on the first rank for all, as
// clocks, memory and files may differ; it gets the job, opened, and over how many hosts the ranks are spread.
// Throws Error(kUsage) on a rank whose program, recipe, model or data are others than the first rank's.
// Collective.
ProcessJob PrepareProcessJob(TrainConfig config, Comm& world,
                             const std::function<Job(Job opened, int num_hosts)>& resolve);

}  // namespace longspan
