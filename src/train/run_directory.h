// The run directory: config.yml, metrics.jsonl, report.html, tensorboard/, checkpoints/, profile/
// (docs/reference/run-directory.md).
#pragma once

#include <cstdint>
#include <string>

#include "comm/comm.h"
#include "core/file_calls.h"

namespace longspan {

// What `resume` means for this directory: the checkpoint to start from, or empty for a fresh start. None is
// looked into, and nothing is changed. Throws Error for a fresh start, or one from another run's checkpoint,
// in a directory that already has steps, and for a checkpoint that isn't there.
std::string CheckpointToResume(const std::string& run_directory, const std::string& resume);

// Where a run begins.
struct StartingPoint {
  std::string wanted;      // of CheckpointToResume
  std::string checkpoint;  // what the run goes on from; empty: it starts afresh
};
// The checkpoint to resume, read once for damage. With resume=auto one that is damaged is passed over, with a
// line that says why, for the one before it; where all are, or with the path of one, that is an error.
// Collective: the first rank looks and shows.
StartingPoint FindStartingPoint(const std::string& run_directory, const std::string& resume, Comm& world);

// The model directory that a path means: itself (what it links to: `latest` may soon link to another), or
// of a run directory the newest checkpoint. Throws Error for what is no directory, and for a directory
// without a config.json or checkpoints.
std::string ModelDirectory(const std::string& path);

// A run directory in use by this run alone, for as long as the object lives.
class RunDirectory {
 public:
  // Makes the directory, locks it, writes config.yml, cuts metrics.jsonl back to the lines of steps up to
  // `step`, points checkpoints/latest at the checkpoint that the run goes on from, if it is its own, and
  // removes what a killed run left there. Throws Error if another run is using it, or has changed since
  // CheckpointToResume what `resume` means.
  RunDirectory(const std::string& path, const std::string& resume, const StartingPoint& start,
               const std::string& config_yaml, int64_t step, const FileCalls& calls = FileCalls::System());
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

 private:
  int lock_fd_ = -1;
};

inline std::string ConfigIn(const std::string& run_directory) { return run_directory + "/config.yml"; }
inline std::string CheckpointsIn(const std::string& run_directory) { return run_directory + "/checkpoints"; }
inline std::string MetricsIn(const std::string& run_directory) { return run_directory + "/metrics.jsonl"; }
inline std::string ReportIn(const std::string& run_directory) { return run_directory + "/report.html"; }
inline std::string TensorBoardIn(const std::string& run_directory) { return run_directory + "/tensorboard"; }
inline std::string ProfileIn(const std::string& run_directory) {
  return run_directory + "/profile/trace.json";
}

}  // namespace longspan
