// What a person sees at the start of a run.
#pragma once

#include <span>
#include <string>

#include "backend/backend.h"
#include "comm/hosts.h"
#include "train/job.h"
#include "train/replica.h"

namespace longspan {

// The machine's peak for the run's dtype over all its ranks, FLOP/s: peak_tflops, or measured.
struct MachinePeak {
  double flops_per_second = 0;
  int num_threads = 0;  // that do it together
  std::string source;   // "vdpbf16ps, measured", "given"
};
MachinePeak FindPeak(const Job& job);
// The same of all hosts together, whose ranks measure at once. Collective.
MachinePeak FindPeak(const Job& job, Comm& world, std::span<const Host> hosts);

// Machine, hosts if ranks are processes, CPU target, ranks and mesh, model size, data, tokens a step, memory
// by name of the rank that takes most, whose dry run it is given, and where what is offloaded goes. Throws
// Error(kResource) if offload_directory can't be used.
std::string StartReport(const Job& job, const MachinePeak& peak, const DryRun& dry,
                        std::span<const Host> hosts = {});

}  // namespace longspan
