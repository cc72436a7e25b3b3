#include "comm/peer_watch.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace longspan {

void PeerWatch::SetTimeout(double seconds) { timeout_ = seconds; }

std::vector<int> PeerWatch::Look(double now, const std::optional<Wait>& wait) {
  const bool was_stopped = looked_at_ > 0 && now - looked_at_ > 2 * pause();  // this process, or the machine
  looked_at_ = now;
  const std::vector<int> before = wait_ ? wait_->missing : std::vector<int>();
  wait_ = wait;
  if (!wait) return {};
  for (const int rank : wait->missing) {
    Peer& its = peer(rank);
    if (std::ranges::find(before, rank) == before.end()) its = {};
    its.active_at = std::max(its.active_at, was_stopped ? now : wait->begun_at);
  }
  return wait->missing;
}

double PeerWatch::LastActive() const {
  double active_at = 0;
  for (const int rank : wait_->missing) active_at = std::max(active_at, peer(rank).active_at);
  return active_at;
}

std::vector<int> PeerWatch::HearAnswer(double now, int from, const Report& report) {
  Peer& its = peer(from);
  const bool is_first = its.answered_at == 0;
  its.answered_at = now;
  its.waits = report.idle_seconds >= 0;
  its.waits_in = report.waits_in;
  if (its.waits) its.active_at = std::max(its.active_at, now - report.idle_seconds);
  if (is_first || HasDoneSomething(its.compared, report.activity, now - its.compared_at)) {
    if (!is_first) its.active_at = now;
    its.compared = report.activity;
    its.compared_at = now;
  }
  std::vector<int> news;
  for (int rank = 0; rank < size_ && wait_; ++rank) {
    const Asker& asker = askers_[static_cast<size_t>(rank)];
    if (asker.asked_at > now - 2 * pause() && LastActive() > asker.told_at + pause() / 2)
      news.push_back(rank);
  }
  return news;
}

PeerWatch::Report PeerWatch::Answer(double now, int to, const Activity& activity) {
  Report report = {.activity = activity};
  if (!wait_) return report;
  askers_[static_cast<size_t>(to)].told_at = LastActive();
  report.idle_seconds = std::max(0.0, now - LastActive());
  Describe(wait_->name).copy(report.waits_in, sizeof report.waits_in - 1);
  return report;
}

// One that waits is judged later, so that whoever waits for one that has failed is the first to say so.
double PeerWatch::JudgedAt(const Peer& its) const {
  const double turn = 0.125 * rank_ / size_;
  return its.active_at + timeout_ * ((its.waits ? 1.25 : 1) + turn);
}

double PeerWatch::NextJudgement() const {
  double next = std::numeric_limits<double>::infinity();
  if (wait_)
    for (const int rank : wait_->missing) next = std::min(next, JudgedAt(peer(rank)));
  return next;
}

std::optional<PeerWatch::Failed> PeerWatch::Judge(double now) const {
  if (!wait_) return std::nullopt;
  std::vector<int> failed, waiting;
  std::vector<std::string> why;
  for (const int rank : wait_->missing) {
    const Peer& its = peer(rank);
    const bool answers = its.answered_at > now - timeout_ / 2;
    if (now < JudgedAt(its)) continue;
    if (answers && its.waits) {
      waiting.push_back(rank);
    } else {
      failed.push_back(rank);
      why.push_back(fmt::format("rank {} {}", rank,
                                answers ? "neither computes nor reads nor writes" : "does not answer"));
    }
  }
  // Not how long exactly, so that ranks of one collective say the same, which is then said once.
  if (!failed.empty())
    return Failed{WaitedInVain(wait_->name, timeout_, failed, fmt::format("{}", fmt::join(why, ", "))),
                  failed};
  if (!waiting.empty())
    return Failed{CallsDisagree(wait_->name, timeout_, waiting[0], peer(waiting[0]).waits_in), {}};
  return std::nullopt;
}

std::optional<std::string> PeerWatch::TakeRemark(double now) {
  // One of the ranks that wait says it.
  const auto is_missing = [&](int rank) {
    return std::ranges::find(wait_->missing, rank) != wait_->missing.end();
  };
  const auto is_active = [&](int rank) { return now - peer(rank).active_at < timeout_ / 2; };
  if (has_remarked_ || !wait_ || now - wait_->begun_at < timeout_ || rank_ != (is_missing(0) ? 1 : 0) ||
      !std::ranges::all_of(wait_->missing, is_active))
    return std::nullopt;
  has_remarked_ = true;
  std::vector<int> busy;  // or those that wait for them
  std::ranges::copy_if(wait_->missing, std::back_inserter(busy), [&](int rank) { return !peer(rank).waits; });
  return StillWaits(wait_->name, timeout_, busy.empty() ? wait_->missing : busy);
}

}  // namespace longspan
