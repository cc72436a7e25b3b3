// `longspan bench`: what kernels and whole steps do on this machine, against what its arithmetic units can do
// at most.
#pragma once

#include <span>
#include <string>

#include "bench/report.h"
#include "bench/settings.h"

namespace longspan::bench {

// The words after `bench`: a subject, its keys, --format. Prints what it measures. Throws Error(kUsage) for
// what there is not, Error(kResource) where memory runs out.
void Run(std::span<const std::string> arguments);
std::string Help();

// One file each: the keys that a subject takes, and its table of cases, measured in order.
std::vector<Key> AttentionKeys();
void RunAttention(const Settings& settings, Report& report);
std::vector<Key> MatmulKeys();
void RunMatmul(const Settings& settings, Report& report);
std::vector<Key> StepKeys();
void RunStep(const Settings& settings, Report& report);
std::vector<Key> StrategiesKeys();
void RunStrategies(const Settings& settings, Report& report);

}  // namespace longspan::bench
