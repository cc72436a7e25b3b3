// What a person sees at the start of a run.
#pragma once

#include <string>

#include "backend/backend.h"
#include "train/job.h"
#include "train/replica.h"

namespace longspan {

// The machine's peak for the run's dtype over all its ranks, FLOP/s: peak_tflops, or measured.
struct MachinePeak {
  double flops_per_second = 0;
  std::string source;  // "vdpbf16ps, measured", "given"
};
MachinePeak FindPeak(const Job& job);

// Machine, CPU target, ranks and mesh, model size, data, tokens a step, memory by name of the rank that
// takes most, whose dry run it is given, and where what is offloaded goes. Throws Error(kResource) if
// offload_directory can't be used.
std::string StartReport(const Job& job, const MachinePeak& peak, const DryRun& dry);

}  // namespace longspan
