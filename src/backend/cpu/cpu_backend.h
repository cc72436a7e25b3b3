// The CPU backend and its dry twin. Most code makes them through backend.h, which chooses the target.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cpu/cpu_features.h"

namespace longspan::cpu {

// With a given target, which this CPU must run.
std::unique_ptr<Backend> MakeCpuBackend(CpuTarget target, int num_threads);
std::unique_ptr<Backend> MakeDryBackend(CpuTarget target, int num_threads, WorkRecorder* recorder = nullptr);

}  // namespace longspan::cpu
