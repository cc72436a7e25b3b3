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
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "core/event.h"

namespace longspan {

class ThreadJob : public std::enable_shared_from_this<ThreadJob> {
 public:
  class Group;

  explicit ThreadJob(int num_ranks) : workers_(static_cast<size_t>(num_ranks)) {}

  std::shared_ptr<Group> World() const;
  // The group of these ranks of `parent`. Each of them calls with the same ranks; `count` tells its calls
  // with equal ranks apart. Throws PeerFailed once the job has ended.
  std::shared_ptr<Group> Subgroup(Group& parent, std::span<const int> ranks, int count);

  // Starts an operation of rank `me` of `group`. Never blocks.
  Event Post(Group& group, Channel channel, int me, std::span<const Push> pushes, std::span<const Pull> pulls,
             const Event& after);

  // Ends all operations, now and later: their events fail with PeerFailed(reason). The first call wins. On
  // return no memory that operations name is in use, nor will be.
  void End(const std::string& reason);

  // What the worker thread of `rank` (of the world) runs until the job has ended.
  void Work(int rank);

 private:
  struct Operation;
  struct Transfer;
  struct Mailbox;
  struct Worker {
    std::condition_variable wake;
    std::deque<std::shared_ptr<Transfer>> ready;
  };

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
  int moving_ = 0;                 // transfers that touch memory just now
  std::condition_variable quiet_;  // ended and moving_ == 0
  std::unordered_set<std::shared_ptr<Operation>> outstanding_;
  std::vector<Worker> workers_;
};

// The ranks of a communicator and their mailboxes.
class ThreadJob::Group {
 public:
  explicit Group(std::vector<int> job_ranks);
  ~Group();
  int size() const { return static_cast<int>(job_ranks_.size()); }
  int job_rank(int rank) const { return job_ranks_[static_cast<size_t>(rank)]; }

 private:
  friend class ThreadJob;
  Mailbox& mailbox(Channel channel, int from, int to);

  const std::vector<int> job_ranks_;
  std::vector<Mailbox> mailboxes_;  // [channel][from][to]

  struct Child {
    std::shared_ptr<Group> group;
    int missing;  // members that haven't come for it
  };
  std::map<std::pair<std::vector<int>, int>, Child> children_;
};

}  // namespace longspan
