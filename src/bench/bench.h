// `longspan bench`: what kernels and whole steps do on this machine, against what its arithmetic units can do
// at most.
#pragma once

#include "bench/report.h"
#include "bench/settings.h"

namespace longspan::bench {

// One file each: a table of cases, measured in order. Throws Error(kUsage) for settings that do not go
// together, Error(kResource) where memory runs out.
void RunAttention(const Settings& settings, Report& report);
void RunMatmul(const Settings& settings, Report& report);
void RunStep(const Settings& settings, Report& report);
void RunStrategies(const Settings& settings, Report& report);

}  // namespace longspan::bench
