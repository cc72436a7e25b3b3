// The exchange between ranks that are processes: this process's part in it, and the thread that moves it.
//
// Every message is found by sender, receiver and tag alone, so that making a group is no call of MPI and
// nothing is left of one that is gone. A tag is made of the group's number among those that the two ranks
// share, which both have made in the same order, of the channel, and of the number of the operation, which
// both count. (These numbers go round. MPI keeps the order of messages with equal tags, so that matters to
// nobody who has fewer than some hundred operations begin late.)
//
// The end of a job that fails: a rank that fails, or hears that another has, takes no more messages and tells
// every other one so; once all have, nobody touches another's memory any more. Its last word is then its own
// error, or that it has none.
//
// The thread watches over those that this rank waits for (comm/peer_watch.h): it asks and answers by the same
// kind of messages.
#pragma once

#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "comm/exchange.h"
#include "comm/mpi_transfers.h"
#include "comm/peer_watch.h"
#include "core/event.h"

namespace longspan {

class MpiJob : public std::enable_shared_from_this<MpiJob> {
 public:
  MpiJob();   // begins MPI; throws Error(kResource)
  ~MpiJob();  // after Leave

  int rank() const { return rank_; }
  int size() const { return size_; }

  // The number of a new group among those that this rank shares with that one.
  uint32_t NumberGroupWith(int rank) { return num_groups_[static_cast<size_t>(rank)]++; }
  int Tag(uint32_t group, Channel channel, uint32_t operation) const;

  // Starts an operation of this rank. Never blocks.
  Event Post(const std::shared_ptr<MpiOperation>& operation, const Event& after);

  // Ends all operations of the job, now and later: their events fail with PeerFailed("rank N failed: …"). The
  // first call wins. On return no memory that operations name is in use, nor will be, by any rank that has
  // answered in time.
  void End(const std::string& reason);
  void RequireGoingOn();  // throws what those operations fail with

  // After End: tells all ranks this one's own error, or, if it has none, nothing but that it ends.
  void SayLastWord(const std::string& error);
  // Whether a rank before this one has failed with the same error, as far as they say so in time.
  bool IsSaidBefore(const std::string& error);
  int culprit();  // the rank that failed first, as far as this one knows

  void SetFailureTimeout(double seconds);

  // Ends MPI, or, if ranks don't come to their ends after a failure, the job.
  void Leave(int exit_code);

 private:
  struct Notice {
    enum Kind : int32_t { kFailed, kStopped, kLastWord, kAsk, kAnswer };
    int32_t kind = kStopped;
    int32_t culprit = -1;  // of kFailed and kStopped
    int32_t is_lost = 0;   // that one: nobody need wait for its end
    PeerWatch::Report report;
    char text[760] = {};
  };
  struct Sending {
    Notice notice;
    MPI_Request request;
  };
  struct Peer {
    bool stopped = false, ended = false;
    std::string last_word;
    void Lose() { stopped = ended = true; }  // it says no more
  };

  // The thread's own.
  void Begin();
  void Work();
  void Finish();
  bool PollNotices();
  void Hear(const Notice& notice, int from);
  void Watch(double now);
  void Look(double now);
  void Answer(int rank);
  Notice EndNotice(Notice::Kind kind) const;  // the mutex is held
  void BecomeQuiet();
  void OnDone(const std::shared_ptr<MpiOperation>& operation);

  void OnBegun(const std::shared_ptr<MpiOperation>& operation, const Failure& failure);
  void EndLocked(int culprit, Failure failure, const std::string& reason, bool is_lost = false);
  bool AllOthers(bool Peer::*flag) const;
  void Tell(const Notice& notice);            // all; the mutex is held
  void Send(const Notice& notice, int rank);  // the thread's own

  int rank_ = 0, size_ = 0, group_bits_ = 0, operation_bits_ = 0;
  std::vector<uint32_t> num_groups_;  // with each rank; used by the rank's thread
  MPI_Comm messages_ = MPI_COMM_NULL, notices_ = MPI_COMM_NULL;
  Notice heard_;
  MPI_Request hearing_ = MPI_REQUEST_NULL;
  std::list<Sending> telling_;
  std::optional<PeerWatch> watch_;  // of those who began
  double watched_at_ = 0, judges_at_ = 0;
  int64_t bytes_moved_ = 0;

  std::atomic<double> failure_timeout_ = kFailureTimeout;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_, changed_;
  std::deque<std::shared_ptr<MpiOperation>> begun_;  // the thread hasn't seen them
  std::unordered_set<std::shared_ptr<MpiOperation>> outstanding_;
  std::deque<Notice> to_tell_;
  bool ended_ = false, quiet_ = false, leaving_ = false, aborts_ = false;
  bool has_judged_ = false, has_lost_ = false;  // this rank has found one that failed; somebody has
  int culprit_ = -1, exit_code_ = 0;
  std::string reason_;
  Failure failure_;
  std::vector<Peer> peers_;  // by rank

  std::thread thread_;
};

}  // namespace longspan
