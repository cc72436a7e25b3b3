#include "comm/thread_job.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/check.h"
#include "core/clock.h"

namespace longspan {

namespace {

// Between two looks at whether the job has ended: bytes, and sums of f32.
constexpr int64_t kCopyStep = int64_t{256} << 10, kSumStep = int64_t{16} << 10;

}  // namespace

ThreadJob::Group::Group(std::vector<int> job_ranks)
    : job_ranks_(std::make_shared<const std::vector<int>>(std::move(job_ranks))),
      mailboxes_(2 * job_ranks_->size() * job_ranks_->size()) {}

ThreadJob::Group::~Group() = default;

ThreadJob::Mailbox& ThreadJob::Group::mailbox(Channel channel, int from, int to) {
  return mailboxes_[static_cast<size_t>((static_cast<int>(channel) * size() + from) * size() + to)];
}

std::shared_ptr<ThreadJob::Group> ThreadJob::World() const {
  std::vector<int> ranks(workers_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<Group>(std::move(ranks));
}

std::shared_ptr<ThreadJob::Group> ThreadJob::Subgroup(Group& parent, std::span<const int> ranks, int count) {
  std::unique_lock lock(mutex_);
  if (ended_) {
    WaitUntilQuiet(lock);
    throw PeerFailed(reason_);
  }
  const std::pair key(std::vector<int>(ranks.begin(), ranks.end()), count);
  Group::Child& child = parent.children_[key];
  if (!child.group) {
    std::vector<int> job_ranks;
    for (const int rank : ranks) job_ranks.push_back(parent.job_rank(rank));
    child = {std::make_shared<Group>(std::move(job_ranks)), static_cast<int>(ranks.size())};
  }
  std::shared_ptr<Group> group = child.group;
  if (--child.missing == 0) parent.children_.erase(key);
  return group;
}

Event ThreadJob::Post(const std::shared_ptr<Group>& its_group, WorkKind kind, int64_t step, int me,
                      std::span<const Push> pushes, std::span<const Pull> pulls, const Event& after) {
  Group& group = *its_group;
  const Channel channel = ChannelOf(kind);
  const auto operation = std::make_shared<Operation>();
  operation->group = its_group;
  operation->job_rank = group.job_rank(me);
  operation->name = {kind, group.job_ranks_, -1, step};
  if (channel == Channel::kPointToPoint)
    operation->name.peer = group.job_rank(pushes.empty() ? pulls[0].first_from : pushes[0].to);
  operation->missing = 1 + std::ssize(pushes) + std::ssize(pulls);
  {
    std::unique_lock lock(mutex_);
    if (ended_) {
      WaitUntilQuiet(lock);
      operation->source.Fail(PeersFailure());
      return operation->source.event();
    }
    outstanding_.insert(operation);
    for (const Pull& pull : pulls) {
      const size_t num_from = static_cast<size_t>(pull.num_from);
      const auto transfer =
          std::make_shared<Transfer>(Transfer{std::vector<Transfer::Part>(num_from), pull.data, pull.bytes,
                                              operation, group.job_rank(me), 1 + pull.num_from});
      operation->waiting.push_back(transfer);
      for (size_t i = 0; i < num_from; ++i) {
        Mailbox& mailbox = group.mailbox(channel, pull.first_from + static_cast<int>(i), me);
        mailbox.wanted.push_back({transfer, i});
        Match(mailbox);
      }
    }
    for (const Push& push : pushes) {
      Mailbox& mailbox = group.mailbox(channel, me, push.to);
      mailbox.published.push_back({push.data, push.bytes, operation});
      Match(mailbox);
    }
  }
  after.OnDone(
      [job = shared_from_this(), operation](const Failure& failure) { job->Begin(operation, failure); });
  return operation->source.event();
}

// Brings the heads of a mailbox together.
void ThreadJob::Match(Mailbox& mailbox) {
  if (mailbox.published.empty() || mailbox.wanted.empty()) return;
  auto [data, bytes, sender] = std::move(mailbox.published.front());
  auto [transfer, part] = std::move(mailbox.wanted.front());
  mailbox.published.pop_front();
  mailbox.wanted.pop_front();
  CHECK(bytes == transfer->bytes);  // or the two ranks' calls are not in the same order
  transfer->parts[part] = {data, sender};
  if (sender->begun_at > 0) {
    CountDown(transfer);
  } else {
    sender->waiting.push_back(transfer);
  }
}

// `after` has happened. If it failed, so does the operation, and no memory it names is ever touched.
void ThreadJob::Begin(const std::shared_ptr<Operation>& operation, const Failure& failure) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;  // End has failed it, or will
    if (!failure) {
      operation->begun_at = Now();
      for (const auto& transfer : operation->waiting) CountDown(transfer);
    }
    operation->waiting.clear();
    if (!failure && --operation->missing > 0) return;
    outstanding_.erase(operation);
  }
  operation->source.Fail(failure);  // sets it where there is none
}

void ThreadJob::CountDown(const std::shared_ptr<Transfer>& transfer) {
  if (--transfer->missing > 0) return;
  Worker& worker = workers_[static_cast<size_t>(transfer->job_rank)];
  worker.ready.push_back(transfer);
  worker.wake.notify_one();
}

void ThreadJob::Work(int rank) {
  Worker& worker = workers_[static_cast<size_t>(rank)];
  std::unique_lock lock(mutex_);
  for (;;) {
    worker.wake.wait(lock, [&] { return ended_ || !worker.ready.empty(); });
    if (ended_) return;
    std::shared_ptr<Transfer> transfer = std::move(worker.ready.front());
    worker.ready.pop_front();
    transfer->receiver->source.Begin();
    for (const Transfer::Part& part : transfer->parts) part.sender->source.Begin();
    ++moving_;
    lock.unlock();
    Move(*transfer);
    lock.lock();
    --moving_;
    if (ended_) {
      quiet_.notify_all();
      return;
    }
    std::vector<std::shared_ptr<Operation>> done;
    const auto count_down = [&](const std::shared_ptr<Operation>& operation) {
      if (--operation->missing > 0) return;
      outstanding_.erase(operation);
      ++num_done_;
      done.push_back(operation);
    };
    for (const Transfer::Part& part : transfer->parts) count_down(part.sender);
    count_down(transfer->receiver);
    lock.unlock();  // an event's callbacks take the mutex
    for (const auto& operation : done) operation->source.Set();
    transfer.reset();
    done.clear();
    lock.lock();
  }
}

void ThreadJob::Move(const Transfer& transfer) const {
  if (transfer.parts.size() == 1) {
    const char* from = static_cast<const char*>(transfer.parts[0].data);
    char* to = static_cast<char*>(transfer.data);
    if (from == to) return;
    for (int64_t i = 0; i < transfer.bytes && !ended_; i += kCopyStep)
      std::memcpy(to + i, from + i, static_cast<size_t>(std::min(kCopyStep, transfer.bytes - i)));
    return;
  }
  const int64_t total = transfer.bytes / int64_t{sizeof(float)};
  std::vector<const float*> parts(transfer.parts.size());
  for (int64_t begin = 0; begin < total && !ended_; begin += kSumStep) {
    for (size_t p = 0; p < parts.size(); ++p)
      parts[p] = static_cast<const float*>(transfer.parts[p].data) + begin;
    SumInOrder(parts, std::min(kSumStep, total - begin), static_cast<float*>(transfer.data) + begin);
  }
}

void ThreadJob::End(const std::string& reason, ExitCode code) {
  decltype(outstanding_) failed;
  {
    std::unique_lock lock(mutex_);
    if (!ended_) {
      reason_ = reason;
      code_ = code;
      ended_ = true;
      for (Worker& worker : workers_) worker.wake.notify_all();
      watch_.notify_all();
    }
    WaitUntilQuiet(lock);
    failed.swap(outstanding_);
    // Operations and transfers point to each other.
    for (const auto& operation : failed) operation->waiting.clear();
  }
  // Only now, so that a rank that fails in turn finds its memory untouched.
  for (const auto& operation : failed) operation->source.Fail(PeersFailure());
}

// No transfer begins after the end, and one under way stops at its next step.
void ThreadJob::WaitUntilQuiet(std::unique_lock<std::mutex>& lock) {
  quiet_.wait(lock, [&] { return moving_ == 0; });
}

Failure ThreadJob::PeersFailure() const {
  return [reason = reason_, code = code_] {
    if (code == ExitCode::kPeer) throw PeerFailed(reason);
    throw Error(reason, code);
  };
}

}  // namespace longspan
