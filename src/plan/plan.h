// A plan: what a run would take and how long its steps would last, before anything is rented. It is the
// trainer itself, run dry (train/replica.h): memory by name and messages are those of the run; its work, laid
// out in time on a machine, gives the time of a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/hardware.h"
#include "plan/simulate.h"
#include "train/job.h"
#include "train/memory_budget.h"

namespace longspan {

struct Plan {
  // Memory of the rank that takes most, by name. On a CPU, where both are one, what is offloaded to
  // the host has what the rest leaves.
  bool fits = false;
  std::string misfit;                  // what it lacks; empty if it fits
  std::vector<std::string> would_fit;  // keys with which it would (WhatFits), where that was asked
  std::map<std::string, int64_t> memory, host_memory, disk;
  int64_t device_memory_bytes = 0, host_memory_bytes = 0;  // their sums
  int64_t device_memory_limit = 0, host_memory_limit = 0;  // the hardware's, or device_memory_limit if less

  // A step.
  double step_seconds = 0;
  double mfu = 0;          // allowed pairs counted exactly
  double mfu_maxtext = 0;  // MaxText's own count (docs/numerics.md)
  double hfu = 0;          // all that is multiplied, recomputation included
  double tokens_per_second_per_device = 0;
  std::string bound_by;
  Timeline timeline;
  double useful_flops = 0, maxtext_flops = 0;  // of all ranks
  double hardware_flops = 0;                   // of the rank

  int64_t bytes_sent = 0, messages_sent = 0;  // by the rank, in a step
  int64_t host_bytes = 0, disk_bytes = 0;     // copied by it, both ways

  // Attention: (row, key) pairs of a sequence that each of its ranks works on, summed over layers; where
  // ranks share heads, each rank's part of them.
  std::vector<double> pairs_by_rank;
  double balance() const;  // the largest over the mean; 1 is even
};

// The machine as a rank of this job has it.
Hardware RankHardware(const Job& job, const Hardware& machine);

// Memory and whether it fits alone: a plan whose time is 0. In a fraction of the time.
Plan PlanMemory(const Job& job, const Hardware& machine);
MemoryCheck FitOn(const Hardware& machine);  // which outlives it
// Of a job without text or with one (Job::EqualDocuments); `with_spans`: the timeline keeps each operation.
Plan MakePlan(const Job& job, const Hardware& machine, bool with_spans = false);

}  // namespace longspan
