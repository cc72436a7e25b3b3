// The run directory: config.yml, metrics.jsonl, checkpoints/ (docs/reference/run-directory.md).
#pragma once

#include <cstdint>
#include <string>

namespace longspan {

// What `resume` means for this directory: the checkpoint to start from, or empty for a fresh start. Changes
// nothing. Throws Error for a fresh start in a directory that already has steps, or a checkpoint that isn't
// there.
std::string CheckpointToResume(const std::string& run_directory, const std::string& resume);

// Makes the directory and writes config.yml. Cuts metrics.jsonl back to the lines of steps up to `step`.
void OpenRunDirectory(const std::string& run_directory, const std::string& config_yaml, int64_t step);

inline std::string CheckpointsIn(const std::string& run_directory) { return run_directory + "/checkpoints"; }
inline std::string MetricsIn(const std::string& run_directory) { return run_directory + "/metrics.jsonl"; }

}  // namespace longspan
