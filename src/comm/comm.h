// Comm: a group of ranks that exchange bytes. Every operation is asynchronous.
//
// All ranks of a group call the same collectives in the same order. An operation begins once `after` has
// happened and every buffer it names must stay alive and (for what is sent) unchanged until the returned
// Event has happened, which says both that what is received is there and that peers have taken what was sent.
// A rank that fails must keep its buffers until Abort has returned: see AbortOnUnwind. Every sum across ranks
// is made by the owner of the piece, in rank order, in f32: results repeat bit for bit. A Comm is used by one
// thread, that of its rank.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/event.h"
#include "core/tensor.h"
#include "core/work.h"
#include "mask/mask.h"

namespace longspan {

inline constexpr double kFailureTimeout = 60;  // seconds

class Comm {
 public:
  // What a rank has put on the wire (bytes to other ranks, not to itself) and in how many messages, subgroups
  // included. A piece without bytes is no message. A dry communicator counts the same.
  struct Traffic {
    int64_t bytes_sent = 0, messages_sent = 0;
    friend bool operator==(const Traffic&, const Traffic&) = default;
  };

  // What a rank counts, in its group and all subgroups together.
  struct Counts {
    Traffic traffic;
    double wait_seconds = 0;
    int64_t step = 0;
  };

  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Traffic traffic() const { return counts_->traffic; }
  // Time in which blocking operations waited. (Others are waited for through Backend::Wait.)
  double wait_seconds() const { return counts_->wait_seconds; }
  // Whom this group, and the subgroups that it makes from now on, report their operations to; it outlives
  // them.
  void set_recorder(WorkRecorder* recorder) { recorder_ = recorder; }
  // The step that this rank's operations belong to from now on, in all its groups; for errors. 0: none.
  void set_step(int64_t step) { counts_->step = step; }

  // The group of these ranks of this one, in the order given, which must contain me. Called by those ranks
  // alone, in the same order relative to their other calls. Made once, at start.
  std::unique_ptr<Comm> Subgroup(std::span<const int> ranks);

  // recv = the ranks' `send`, one after the other. recv.num_bytes() = size() · send.num_bytes(). `send` may
  // be my piece of `recv`.
  Event AllGather(Tensor send, Tensor recv, const Event& after = {});
  // send (size()·n) f32, recv (n) f32: recv[i] = Σ over ranks of their send[rank()·n + i], in rank order.
  // `recv` may be my piece of `send`.
  Event ReduceScatter(Tensor send, Tensor recv, const Event& after = {});
  // The same where the pieces of the whole (`recv` of a gather, `send` of a sum) differ in size: that of rank
  // p is its elements pieces[p]. They don't overlap; some may be empty.
  Event AllGather(Tensor send, Tensor recv, std::span<const Range> pieces, const Event& after = {});
  Event ReduceScatter(Tensor send, Tensor recv, std::span<const Range> pieces, const Event& after = {});
  // Rank p gets send_bytes[p] bytes of `send` (pieces lie one after the other in rank order); likewise recv.
  Event AllToAll(Tensor send, std::span<const int64_t> send_bytes, Tensor recv,
                 std::span<const int64_t> recv_bytes, const Event& after = {});
  // Point to point; sends and receives between one pair of ranks match in order, whatever collectives lie
  // between. A rank may send to itself.
  Event Send(Tensor send, int to, const Event& after = {});
  Event Recv(Tensor recv, int from, const Event& after = {});

  // Tells every rank of the whole job that this one failed: their waits, now and later, throw PeerFailed. The
  // first call wins. When it returns no rank touches another's memory any more.
  virtual void Abort(const std::string& reason) = 0;

  // For the whole job: a rank that others wait for and that does nothing for so long, or doesn't even answer
  // where it is a process, has failed. Their waits throw Error(kPeer) that names it, or PeerFailed. A rank
  // that computes, reads or writes is waited for as long as it takes. At first kFailureTimeout.
  virtual void SetFailureTimeout(double seconds) = 0;

  // In place on f32, any length: reduce-scatter + all-gather, so equal bit for bit on every rank. Blocking.
  void AllReduceSum(Tensor values);
  // Sums in f64, in rank order (losses, norms, counts). Blocking. Dry: as if every rank had this one's
  // values.
  double SumOverRanks(double value);
  void SumOverRanks(std::span<double> values);
  void Barrier();

 protected:
  Comm(int rank, int size, std::shared_ptr<Counts> counts);

  // Shared by a rank's group and its subgroups.
  const std::shared_ptr<Counts>& shared_counts() const { return counts_; }

 private:
  // What an implementation provides. Arguments have been checked; traffic has been counted.
  virtual std::unique_ptr<Comm> MakeSubgroup(std::span<const int> ranks, int my_place) = 0;
  virtual Event StartAllGather(Tensor send, Tensor recv, std::span<const Range> pieces,
                               const Event& after) = 0;
  virtual Event StartReduceScatter(Tensor send, Tensor recv, std::span<const Range> pieces,
                                   const Event& after) = 0;
  virtual Event StartAllToAll(Tensor send, std::span<const int64_t> send_bytes, Tensor recv,
                              std::span<const int64_t> recv_bytes, const Event& after) = 0;
  virtual Event StartSend(Tensor send, int to, const Event& after) = 0;
  virtual Event StartRecv(Tensor recv, int from, const Event& after) = 0;

  void CountMessage(int to, int64_t bytes);
  // Reports what has been begun; returns the event to hand on.
  Event Report(WorkKind kind, int64_t bytes, int peer, const Event& after, const Event& done);
  void Finish(const Event& event);  // a blocking operation waits
  // `total` elements cut into a piece for each rank, of equal size but for one element.
  std::vector<Range> EvenPieces(int64_t total) const;
  const Range& Mine(std::span<const Range> pieces) const;

  const int rank_, size_;
  const std::shared_ptr<Counts> counts_;
  std::vector<int> world_ranks_;  // of this group's, as the whole job numbers them
  WorkRecorder* recorder_ = nullptr;
};

// Declared below the owners of the buffers that operations name: if an exception destroys them while
// operations are in flight, this aborts first, so that no peer reads what is gone.
class AbortOnUnwind {
 public:
  explicit AbortOnUnwind(Comm& comm);
  ~AbortOnUnwind();
  AbortOnUnwind(const AbortOnUnwind&) = delete;
  AbortOnUnwind& operator=(const AbortOnUnwind&) = delete;

 private:
  Comm& comm_;
  const int exceptions_before_;
};

}  // namespace longspan
