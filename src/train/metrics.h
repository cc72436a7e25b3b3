// What a step reports: a line of metrics.jsonl and a progress line (docs/reference/metrics.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "train/event_file.h"

namespace longspan {

struct StepMetrics {
  int64_t step = 0;      // updates done, from 1
  double loss = 0;       // mean over the step's targets, natural log, before the update
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t tokens = 0;  // rows that are no padding, over all sequences of the step
  double padding = 0;  // share of the rows that are
  double step_seconds = 0;
  double tokens_per_second = 0;                  // of one rank
  double tflops_per_second = 0;                  // of one rank: useful FLOPs, pairs counted exactly
  std::optional<double> mfu, hfu;                // unset without a known peak
  double communication_wait_seconds = 0;         // mean over ranks
  int64_t memory_peak_bytes = 0;                 // largest rank
  std::optional<int64_t> offload_bytes_written;  // by all ranks; unset where nothing is offloaded
  std::optional<double> offload_wait_seconds;    // mean over ranks
  std::optional<double> eval_loss;               // mean over the held-out targets, after the update
  std::string skipped;                           // why there was no update; empty: there was one
};

// One JSON object and a newline; numbers with all their digits.
std::string MetricsLine(const StepMetrics& metrics);

// The steps of a metrics.jsonl, in order; a line that none of ours looks like is left out. A loss or norm
// that was not finite is NaN. Throws Error as ReadTextFile does.
std::vector<StepMetrics> ReadStepMetrics(const std::string& path);

// Appends lines to a file, each with one write.
class MetricsLog {
 public:
  explicit MetricsLog(const std::string& path) : file_(path) {}
  void Append(const StepMetrics& metrics) { file_.Append(MetricsLine(metrics)); }

 private:
  FileAppender file_;
};

// What TensorBoard is shown of a step, under the names that MaxText gives it; `gradient_clipping_threshold`
// is the run's.
std::vector<Scalar> TensorBoardScalars(const StepMetrics& metrics, double gradient_clipping_threshold);

// The progress line: rewritten in place on a terminal, a line a step otherwise.
class Progress {
 public:
  explicit Progress(int64_t last_step);
  ~Progress();  // ends the line, so that an error begins one of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Print(const StepMetrics& metrics);
  // Ends a line that is still open, before something else is printed.
  void EndLine();

 private:
  const int64_t last_step_;
  const bool terminal_;
  bool open_ = false;
  double mean_seconds_ = 0;
};

}  // namespace longspan
