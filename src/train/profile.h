// Profile: a trace of some steps of a run, all ranks in one file (docs/planning.md, "Beside a real run").
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/hosts.h"
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

  // Where ranks are processes on these hosts, each with a profile of its own: the first gets what the others
  // have recorded, in its own time. Hosts have clocks of their own, which are compared at some barriers:
  // times are right within what it takes to leave one. Collective, and called once, with nothing recorded
  // meanwhile.
  void Gather(Comm& world, std::span<const Host> hosts);

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
  std::vector<TraceSpan> gathered_;      // from other processes
  std::set<std::string> names_;          // of those
  int64_t num_left_out_there_ = 0;
};

}  // namespace longspan
