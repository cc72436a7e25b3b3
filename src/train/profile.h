// Profile: a trace of some steps of a run, all ranks in one file (docs/planning.md, "Beside a real run").
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "core/trace_recorder.h"
#include "train/train_config.h"

namespace longspan {

class Profile {
 public:
  // Of all ranks together; later ones are left out. A file of some 60 MB.
  static constexpr int64_t kMaxSpans = 500'000;

  // Of a run with profile=true: the steps that skip_first_n_steps_for_profiler and profiler_steps say, or as
  // many of these as the run has.
  explicit Profile(const TrainConfig& config, int64_t max_spans = kMaxSpans);

  // Of the run's step after `steps_before` others, resumed ones not counted.
  bool Has(int64_t steps_before) const {
    return steps_before >= first_ && steps_before < first_ + num_steps_;
  }
  TraceRecorder& recorder(int rank) { return recorders_[static_cast<size_t>(rank)]; }

  // Of the last such step of a run of so many.
  bool IsLast(int64_t steps_before, int64_t num_steps) const {
    return Has(steps_before) && (!Has(steps_before + 1) || steps_before + 1 == num_steps);
  }

  // What all ranks have recorded, from the first span on, as `path`, whose folder is made. Throws
  // Error(kResource).
  void Write(const std::string& path) const;
  // What one rank's computing lane was busy or waited with in the traced steps so far, in seconds, by name.
  std::map<std::string, double> SecondsByName(int rank) const;
  // "1,234 spans", and how many were left out.
  std::string Describe() const;

 private:
  const int64_t first_, num_steps_;
  std::deque<TraceRecorder> recorders_;  // by rank
};

}  // namespace longspan
