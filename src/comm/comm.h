// Comm: a group of ranks that exchange bytes. Every operation is asynchronous.
//
// All ranks of a group call the same collectives in the same order. An operation begins once `after` has happened
// and every buffer it names must stay alive and (for what is sent) unchanged until the returned Event has happened,
// which says both that what is received is there and that peers have taken what was sent.
// Every sum across ranks is made by the owner of the piece, in rank order, in f32: results repeat bit for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/event.h"
#include "core/tensor.h"

namespace longspan {

class Comm {
 public:
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The group of these ranks of this one, in the order given, which must contain me. Called by those ranks alone,
  // in the same order relative to their other calls. Made once, at start.
  virtual std::unique_ptr<Comm> Subgroup(std::span<const int> ranks) = 0;

  // recv = the ranks' `send`, one after the other. recv.num_bytes() = size() · send.num_bytes().
  virtual Event AllGather(Tensor send, Tensor recv, Event after = {}) = 0;
  // send (size()·n) f32, recv (n) f32: recv[i] = Σ over ranks of their send[rank()·n + i], in rank order.
  virtual Event ReduceScatter(Tensor send, Tensor recv, Event after = {}) = 0;
  // Rank p gets send_bytes[p] bytes of `send` (pieces lie one after the other in rank order); likewise recv.
  virtual Event AllToAll(Tensor send, std::span<const int64_t> send_bytes, Tensor recv,
                         std::span<const int64_t> recv_bytes, Event after = {}) = 0;
  // Point to point; sends and receives between one pair of ranks match in order. A rank may send to itself.
  virtual Event Send(Tensor send, int to, Event after = {}) = 0;
  virtual Event Recv(Tensor recv, int from, Event after = {}) = 0;

  // Gives outstanding operations a chance to move (MPI moves nothing otherwise). Cheap; called by long kernels.
  virtual void Poll() {}

  // Tells every rank of the whole job that this one failed: their waits, now and later, throw PeerFailed.
  virtual void Abort(const std::string& reason) = 0;

  // In place on f32, any length: reduce-scatter + all-gather, so equal bit for bit on every rank. Blocking.
  void AllReduceSum(Tensor values);
  // Sums in f64, in rank order (losses, norms, counts). Blocking.
  double SumOverRanks(double value);
  void SumOverRanks(std::span<double> values);
  void Barrier();

  // What this rank has put on the wire (bytes to other ranks, not to itself) and in how many messages, subgroups
  // included. A dry communicator counts the same.
  struct Traffic {
    int64_t bytes_sent = 0, messages_sent = 0;
    friend bool operator==(const Traffic&, const Traffic&) = default;
  };
  virtual Traffic traffic() const = 0;
};

}  // namespace longspan
