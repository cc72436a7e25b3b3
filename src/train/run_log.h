// RunLog: what a run leaves and shows of its steps, on its first rank.
#pragma once

#include <cstdint>
#include <optional>

#include "train/event_file.h"
#include "train/job.h"
#include "train/metrics.h"
#include "train/run_report.h"

namespace longspan {

class RunLog {
 public:
  // Of a job whose run directory is there and whose next step is `first_step`. Throws Error(kResource).
  RunLog(const Job& job, int64_t first_step);

  // A line of metrics.jsonl, TensorBoard's scalars if they are wanted, and a progress line.
  void Add(const StepMetrics& metrics);
  // Ends a progress line that is still open, before something else is printed.
  void EndLine() { progress_.EndLine(); }
  // report.html, of all steps in metrics.jsonl.
  void WriteReport(const RankReport& rank) const;

 private:
  const Job& job_;
  MetricsLog metrics_;
  std::optional<EventFile> events_;
  Progress progress_;
};

}  // namespace longspan
