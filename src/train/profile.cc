#include "train/profile.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "core/format.h"
#include "core/trace.h"

namespace longspan {

Profile::Profile(const TrainConfig& config, int64_t max_spans)
    : first_(config.skip_first_n_steps_for_profiler), num_steps_(config.profiler_steps) {
  for (int rank = 0; rank < static_cast<int>(config.ranks); ++rank)
    recorders_.emplace_back(rank, static_cast<size_t>(std::max<int64_t>(1, max_spans / config.ranks)));
}

void Profile::Write(const std::string& path) const {
  std::vector<TraceSpan> spans;
  for (const TraceRecorder& recorder : recorders_) {
    const std::vector<TraceSpan> of_rank = recorder.spans();
    spans.insert(spans.end(), of_rank.begin(), of_rank.end());
  }
  double start = spans.empty() ? 0 : spans.front().begin;
  for (const TraceSpan& span : spans) start = std::min(start, span.begin);
  for (TraceSpan& span : spans) {
    span.begin -= start;
    span.end -= start;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  Require(ExitCode::kResource, !error, "cannot make the folder {} of the profile: {}", folder,
          error.message());
  WriteFileAtomically(path, ChromeTrace(spans));
}

std::map<std::string, double> Profile::SecondsByName(int rank) const {
  std::map<std::string, double> seconds;
  for (const TraceSpan& span : recorders_[static_cast<size_t>(rank)].spans())
    if (span.lane == TraceLane::kCompute) seconds[std::string(span.name)] += span.end - span.begin;
  return seconds;
}

std::string Profile::Describe() const {
  int64_t num_spans = 0, num_left_out = 0;
  for (const TraceRecorder& recorder : recorders_) {
    num_spans += std::ssize(recorder.spans());
    num_left_out += recorder.num_left_out();
  }
  if (num_left_out == 0) return Plural(num_spans, "span");
  return fmt::format("{}, and {} after them left out", Plural(num_spans, "span"), Grouped(num_left_out));
}

}  // namespace longspan
