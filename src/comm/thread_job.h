// The exchange behind the ranks of one RunThreadRanks: who has published what for whom, and who copies it.
//
// Publish and pull. An operation of a rank publishes what it sends and asks for what it receives, in
// mailboxes, one for each (group, channel, sender, receiver), where the two match in order; nothing blocks. A
// transfer is what one receiver copies, or adds up, in one go. Once it is matched and the operations of all
// its parts have begun (their `after` has happened), the receiver's worker thread does it, and tells both
// sides' operations. So any order of posting that could end does end, and no rank's memory is touched but by
// transfers that are ready.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "comm/operation_name.h"
#include "core/check.h"
#include "core/event.h"

namespace longspan {

class ThreadJob : public std::enable_shared_from_this<ThreadJob> {
 public:
  class Group;

  explicit ThreadJob(int num_ranks) : workers_(static_cast<size_t>(num_ranks)), num_at_work_(num_ranks) {}

  std::shared_ptr<Group> World() const;
  // The group of these ranks of `parent`. Each of them calls with the same ranks; `count` tells its calls
  // with equal ranks apart. Throws PeerFailed once the job has ended.
  std::shared_ptr<Group> Subgroup(Group& parent, std::span<const int> ranks, int count);

  // Starts an operation of rank `me` of `group`, in a step. Never blocks.
  Event Post(const std::shared_ptr<Group>& group, WorkKind kind, int64_t step, int me,
             std::span<const Push> pushes, std::span<const Pull> pulls, const Event& after);

  // Ends all operations, now and later: their events fail with PeerFailed(reason), or Error of another code.
  // The first call wins. On return no memory that operations name is in use, nor will be.
  void End(const std::string& reason, ExitCode code = ExitCode::kPeer);

  // What the worker thread of `rank` (of the world) runs until the job has ended.
  void Work(int rank);

  // Comm::SetFailureTimeout.
  void SetFailureTimeout(double seconds);
  // A rank's thread has left its work.
  void RankEnds();
  // Returns true once all ranks have left their work. Ends the job where one of them is waited for and
  // nothing is done any more (thread_watch.cc); false: it has ended, and some don't leave.
  bool WatchRanks();

 private:
  struct Operation;
  struct Transfer;
  struct Mailbox;
  struct Worker {
    std::condition_variable wake;
    std::deque<std::shared_ptr<Transfer>> ready;
  };

  // An operation that has begun, and the ranks whose part in it is missing.
  struct Wait {
    const Operation* operation;
    std::set<int> missing;
  };
  std::vector<Wait> FindWaits(double seconds) const;
  Verdict WhatHoldsUp(double timeout) const;
  void RemarkOnLongWait(double timeout);

  void Match(Mailbox& mailbox);
  void Begin(const std::shared_ptr<Operation>& operation, const Failure& failure);
  void CountDown(const std::shared_ptr<Transfer>& transfer);
  void Move(const Transfer& transfer) const;
  void WaitUntilQuiet(std::unique_lock<std::mutex>& lock);
  Failure PeersFailure() const;

  std::mutex
      mutex_;  // guards everything here and below, also the insides of groups, operations and transfers
  std::atomic<bool> ended_{false};  // written under the mutex
  std::string reason_;
  ExitCode code_ = ExitCode::kPeer;
  int moving_ = 0;                 // transfers that touch memory just now
  std::condition_variable quiet_;  // ended and moving_ == 0
  std::unordered_set<std::shared_ptr<Operation>> outstanding_;
  std::vector<Worker> workers_;
  std::condition_variable watch_;
  int num_at_work_;       // ranks
  int64_t num_done_ = 0;  // operations
  double timeout_ = kFailureTimeout;
  bool has_remarked_ = false;
};

// One call of one rank.
struct ThreadJob::Operation {
  EventSource source;
  std::shared_ptr<Group> group;
  OperationName name;
  int job_rank;         // whose
  double begun_at = 0;  // by Now(); 0: its `after` hasn't happened
  int64_t missing = 0;  // its beginning, its pushes to be taken, its pulls to be done
  std::vector<std::shared_ptr<Transfer>> waiting;  // for it to begin
};

struct ThreadJob::Transfer {
  struct Part {
    const void* data;
    std::shared_ptr<Operation> sender;
  };
  std::vector<Part> parts;  // in rank order
  void* data;
  int64_t bytes;
  std::shared_ptr<Operation> receiver;
  int job_rank;     // whose worker does it
  int64_t missing;  // operations that haven't begun: the senders' and the receiver's
};

struct ThreadJob::Mailbox {
  struct Published {
    const void* data;
    int64_t bytes;
    std::shared_ptr<Operation> sender;
  };
  struct Wanted {
    std::shared_ptr<Transfer> transfer;
    size_t part;
  };
  // At most one of the two is not empty.
  std::deque<Published> published;
  std::deque<Wanted> wanted;
};

// The ranks of a communicator and their mailboxes.
class ThreadJob::Group {
 public:
  explicit Group(std::vector<int> job_ranks);
  ~Group();
  int size() const { return static_cast<int>(job_ranks_->size()); }
  int job_rank(int rank) const { return (*job_ranks_)[static_cast<size_t>(rank)]; }

 private:
  friend class ThreadJob;
  Mailbox& mailbox(Channel channel, int from, int to);

  const std::shared_ptr<const std::vector<int>> job_ranks_;
  std::vector<Mailbox> mailboxes_;  // [channel][from][to]

  struct Child {
    std::shared_ptr<Group> group;
    int missing;  // members that haven't come for it
  };
  std::map<std::pair<std::vector<int>, int>, Child> children_;
};

}  // namespace longspan
