// The watch over ranks that are threads. What any of them does is done by the process, so one that others
// wait for and that does nothing is found by a process that does nothing: no operation ends, no thread
// computes, no byte is read or written.
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "comm/thread_job.h"
#include "core/activity.h"
#include "core/clock.h"
#include "core/report_error.h"

namespace longspan {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kLooks = 8;           // in the timeout
constexpr double kEndSeconds = 10;  // for ranks to leave their work once one has failed

}  // namespace

void ThreadJob::SetFailureTimeout(double seconds) {
  std::lock_guard lock(mutex_);
  timeout_ = seconds;
  watch_.notify_all();
}

void ThreadJob::RankEnds() {
  std::lock_guard lock(mutex_);
  --num_at_work_;
  watch_.notify_all();
}

bool ThreadJob::WatchRanks() {
  std::unique_lock lock(mutex_);
  const auto have_left = [&] { return num_at_work_ == 0; };
  Activity last = ActivityOfProcess();
  double active_at = Now(), looked_at = active_at;
  int64_t num_done = 0;
  while (!ended_) {
    const double timeout = timeout_, pause = timeout / kLooks;
    watch_.wait_for(lock, Seconds(pause), [&] { return have_left() || ended_ || timeout_ != timeout; });
    if (have_left()) return true;
    lock.unlock();
    const Activity activity = ActivityOfProcess();
    lock.lock();
    if (ended_) break;
    const double now = Now();
    const bool was_stopped = now - looked_at > 2 * pause;  // the process, or the machine
    looked_at = now;
    if (was_stopped || num_done_ != num_done || HasDoneSomething(last, activity, now - active_at)) {
      active_at = now;
      last = activity;
      num_done = num_done_;
      RemarkOnLongWait(timeout);
    } else if (now - active_at >= timeout) {
      const Verdict verdict = WhatHoldsUp(timeout);
      if (verdict.message.empty()) continue;
      lock.unlock();
      End(verdict.message, verdict.code);
      lock.lock();
    }
  }
  return watch_.wait_for(lock, Seconds(kEndSeconds), have_left);
}

// Of those that have been under way for so long, the longest first.
std::vector<ThreadJob::Wait> ThreadJob::FindWaits(double seconds) const {
  std::map<const Operation*, std::set<int>> missing;
  std::set<const Group*> groups;
  for (const auto& operation : outstanding_) {
    groups.insert(operation->group.get());
    if (operation->begun_at > 0) continue;
    for (const auto& transfer : operation->waiting) {
      missing[transfer->receiver.get()].insert(operation->job_rank);
      for (const Transfer::Part& part : transfer->parts)
        missing[part.sender.get()].insert(operation->job_rank);
    }
  }
  for (const Group* group : groups) {
    const int size = group->size();
    for (int i = 0; i < 2 * size * size; ++i) {
      const Mailbox& mailbox = group->mailboxes_[static_cast<size_t>(i)];
      const int from = group->job_rank(i / size % size), to = group->job_rank(i % size);
      for (const auto& published : mailbox.published) missing[published.sender.get()].insert(to);
      for (const auto& wanted : mailbox.wanted) missing[wanted.transfer->receiver.get()].insert(from);
    }
  }
  std::vector<Wait> waits;
  for (auto& [operation, ranks] : missing)
    if (operation != nullptr && operation->begun_at > 0 && Now() - operation->begun_at >= seconds)
      waits.push_back({operation, std::move(ranks)});
  std::ranges::sort(waits, {}, [](const Wait& wait) { return wait.operation->begun_at; });
  return waits;
}

Verdict ThreadJob::WhatHoldsUp(double timeout) const {
  const std::vector<Wait> waits = FindWaits(timeout);
  std::map<int, const Operation*> waiting;  // the first of each rank
  for (const Wait& wait : waits) waiting.try_emplace(wait.operation->job_rank, wait.operation);
  for (const Wait& wait : waits) {
    std::vector<int> idle;
    std::vector<std::string> why;
    for (const int rank : wait.missing) {
      if (waiting.contains(rank)) continue;
      idle.push_back(rank);
      why.push_back(fmt::format("rank {} neither computes nor reads nor writes", rank));
    }
    if (!idle.empty())
      return WaitedInVain(wait.operation->name, timeout, idle, fmt::format("{}", fmt::join(why, ", ")));
  }
  if (waits.empty()) return {};
  const int other = *waits[0].missing.begin();
  return CallsDisagree(waits[0].operation->name, timeout, other, Describe(waiting.at(other)->name));
}

void ThreadJob::RemarkOnLongWait(double timeout) {
  if (has_remarked_) return;
  const std::vector<Wait> waits = FindWaits(timeout);
  if (waits.empty()) return;
  has_remarked_ = true;
  const std::set<int>& missing = waits[0].missing;
  std::vector<int> busy;  // or those that wait for them
  std::ranges::copy_if(missing, std::back_inserter(busy), [&](int rank) {
    return std::ranges::none_of(waits, [&](const Wait& wait) { return wait.operation->job_rank == rank; });
  });
  if (busy.empty()) busy.assign(missing.begin(), missing.end());
  Remark(StillWaits(waits[0].operation->name, timeout, busy));
}

}  // namespace longspan
