// The memory that a rank may take, and whether it finds it: what is checked before a run, and what is tried
// where the run, or its planner, chooses itself.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/job.h"
#include "train/replica.h"

namespace longspan {

// What the rank takes that takes most, and what it lacks.
struct MemoryFit {
  int64_t device_bytes = 0, host_bytes = 0;
  std::string misfit;  // "device memory: 3.00 GiB of 2.00 GiB"; empty: it fits
  bool fits() const { return misfit.empty(); }
};
// Of a job that is resolved: as training on this machine takes it, or as a plan for another does.
using MemoryCheck = std::function<MemoryFit(const Job&)>;

// On this machine, whose memory is that of devices and hosts alike, and within device_memory_limit. The ranks
// are spread over so many machines, evenly.
MemoryFit FitHere(const Job& job, int num_hosts = 1);

int64_t TotalBytes(const std::map<std::string, int64_t>& memory);
std::vector<std::pair<std::string, int64_t>> LargestFirst(const std::map<std::string, int64_t>& memory);
// "weights 1.20 GiB, optimizer 800 MiB, gradients 1.00 MiB": the largest three.
std::string LargestText(const std::map<std::string, int64_t>& memory);

// Throws Error(kResource) naming the largest tensors if the ranks on this machine together need more than its
// memory.
void RequireMemory(const Job& job, const std::map<std::string, int64_t>& memory, int num_hosts = 1);
// Throws Error(kResource) if the rank that takes most takes more than device_memory_limit; it names the
// largest tensors and the keys with which the run would fit. `dry` is of that rank.
void RequireWithinLimit(const Job& job, const DryRun& dry, int num_hosts = 1);

}  // namespace longspan
