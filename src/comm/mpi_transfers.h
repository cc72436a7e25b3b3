// The messages of one process that MPI has in hand. Used by the one thread that makes all calls of MPI.
//
// A message goes in pieces, so that none is too long for MPI and a slow one holds up no other. Pieces of a
// message have one tag: MPI keeps the order in which they are posted. Sends are synchronous: they end when
// the peer has taken what is sent.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/operation_name.h"
#include "core/event.h"

namespace longspan {

// Throws Error(kResource) with MPI's own words unless `result` is MPI_SUCCESS.
void CheckMpi(int result, const char* action);

// What an operation sends to another rank or receives from it. A piece without bytes is no message.
struct MpiMessage {
  int peer, tag;  // as MPI numbers ranks
  void* data;
  int64_t bytes;
  int64_t moved = 0;  // bytes of it
};

// One call of one rank.
struct MpiOperation {
  // f32 sums over the ranks of a group in their order. Of a peer's part there is a message, without memory;
  // `data` of the other is this rank's own.
  struct Sum {
    std::vector<MpiMessage> parts;
    float* sums;
    int64_t count;  // of elements; 0: there is no sum
  };

  EventSource source;
  OperationName name;
  double begun_at = 0;  // by Now(); 0: it hasn't
  std::vector<MpiMessage> sends, receives;
  Sum sum = {{}, nullptr, 0};
  const void* own_from = nullptr;  // what it has for itself
  void* own_to = nullptr;
  int64_t own_bytes = 0;
  // Of messages. Both sides of a message know the number.
  int64_t piece_bytes = int64_t{1} << 20;
  int64_t missing = 0;  // messages and sums that haven't ended

  // The ranks that it has messages of, or for, which haven't moved.
  std::vector<int> MissingRanks(int me) const;
};

class MpiTransfers {
 public:
  // `done` is told of an operation that has ended; its event is for the owner to set.
  using Done = std::function<void(const std::shared_ptr<MpiOperation>&)>;
  MpiTransfers(MPI_Comm comm, int rank, Done done) : comm_(comm), rank_(rank), done_(std::move(done)) {}
  ~MpiTransfers();  // lets go of what is under way
  MpiTransfers(const MpiTransfers&) = delete;
  MpiTransfers& operator=(const MpiTransfers&) = delete;

  // Its `after` has happened.
  void Start(const std::shared_ptr<MpiOperation>& operation);
  // Moves on what can move; false if nothing has. Throws std::logic_error if the two sides of a message
  // disagree on its length, and as CheckMpi does.
  bool Poll();
  bool idle() const { return requests_.empty(); }
  int64_t bytes_moved() const { return bytes_moved_; }

  // Nothing begins any more, and what is about to be received isn't.
  void Stop();
  // After Stop: whether a message may still be written to memory of an operation. Sends may remain that
  // nobody will take.
  bool receives() const;

 private:
  struct Flow;    // a message under way
  struct Adding;  // a sum under way
  struct Piece {
    int peer;
    int64_t received_bytes;  // −1: it is sent
    std::function<void()> done;
  };

  void Post(bool is_send, const MpiMessage& piece, std::function<void()> done);
  void Advance(const std::shared_ptr<Flow>& flow);
  void Advance(const std::shared_ptr<Adding>& adding, size_t slot);
  void CountDown(const std::shared_ptr<MpiOperation>& operation);

  const MPI_Comm comm_;
  const int rank_;
  const Done done_;
  bool stopped_ = false;
  int64_t bytes_moved_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;                // of the requests
  std::vector<std::vector<float>> scratch_;  // that sums have used and given back
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace longspan
