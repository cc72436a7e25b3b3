#include "train/run_log.h"

#include "core/file.h"
#include "train/run_directory.h"

namespace longspan {

RunLog::RunLog(const Job& job, int64_t first_step)
    : job_(job), metrics_(MetricsIn(job.run_directory())), progress_(job.config.steps) {
  if (job.config.enable_tensorboard) events_.emplace(TensorBoardIn(job.run_directory()), first_step);
}

void RunLog::Add(const StepMetrics& metrics) {
  metrics_.Append(metrics);
  if (events_)
    events_->Append(metrics.step, TensorBoardScalars(metrics, job_.config.gradient_clipping_threshold));
  progress_.Print(metrics);
}

void RunLog::WriteReport(const RankReport& rank) const {
  const std::string run = job_.run_directory();
  WriteFileAtomically(ReportIn(run),
                      RunPage(job_, ReadStepMetrics(MetricsIn(run)), rank, ReadTextFile(ConfigIn(run))));
}

}  // namespace longspan
