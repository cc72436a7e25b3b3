#include "core/work_log.h"

#include "core/check.h"

namespace longspan {

void WorkLog::Compute(const Work& work) {
  CHECK(LaneOf(work.kind) == Lane::kCompute);
  entries_.push_back({.work = work});
}

Event WorkLog::Transfer(const Work& work, const Event& after, const Event& done) {
  CHECK(LaneOf(work.kind) != Lane::kCompute);
  CHECK(done.Done());  // as everything in a dry run
  Entry entry = {.step = Step::kTransfer, .work = work, .event = after.work()};
  if (LaneOf(work.kind) == Lane::kLink) entry.group = GroupOf(work.ranks);
  entry.work.ranks = {};
  entries_.push_back(entry);
  return Event::OfWork(static_cast<int64_t>(entries_.size()));
}

void WorkLog::Wait(const Event& event) {
  if (event.work() == 0) return;
  entries_.push_back({.step = Step::kWait, .work = {}, .event = event.work()});
}

int WorkLog::GroupOf(std::span<const int> ranks) {
  const auto [it, is_new] = group_index_.try_emplace(std::vector<int>(ranks.begin(), ranks.end()),
                                                     static_cast<int>(groups_.size()));
  if (is_new) groups_.emplace_back(ranks.begin(), ranks.end());
  return it->second;
}

}  // namespace longspan
