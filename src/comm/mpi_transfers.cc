#include "comm/mpi_transfers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "comm/exchange.h"
#include "core/check.h"
#include "core/clock.h"

namespace longspan {
namespace {

constexpr int kPiecesInFlight = 4;  // of a message: enough to keep a link busy

}  // namespace

void CheckMpi(int result, const char* action) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(fmt::format("MPI cannot {}: {}", action, std::string_view(text, static_cast<size_t>(length))),
              ExitCode::kResource);
}

struct MpiTransfers::Flow {
  std::shared_ptr<MpiOperation> operation;
  bool is_send;
  MpiMessage& message;  // of the operation
  int64_t posted = 0;   // bytes
  int in_flight = 0;    // pieces
};

std::vector<int> MpiOperation::MissingRanks(int me) const {
  std::set<int> ranks;
  const auto look = [&](const std::vector<MpiMessage>& messages) {
    for (const MpiMessage& message : messages)
      if (message.moved < message.bytes && message.peer != me) ranks.insert(message.peer);
  };
  look(sends);
  look(receives);
  look(sum.parts);
  return {ranks.begin(), ranks.end()};
}

// A sum is made piece by piece, in two slots: the next one's parts arrive while one is added up.
struct MpiTransfers::Adding {
  struct Slot {
    int64_t begin = 0, count = 0;  // elements
    int missing = 0;               // parts
    std::vector<float> received;   // the others' parts, one after the other
  };
  std::shared_ptr<MpiOperation> operation;
  int64_t piece;                  // elements
  int64_t posted = 0, added = 0;  // likewise
  std::array<Slot, 2> slots;
};

MpiTransfers::~MpiTransfers() {
  for (MPI_Request& request : requests_) MPI_Request_free(&request);
}

void MpiTransfers::Start(const std::shared_ptr<MpiOperation>& operation) {
  MpiOperation& op = *operation;
  op.begun_at = Now();
  if (op.own_bytes > 0 && op.own_from != op.own_to)
    std::memmove(op.own_to, op.own_from, static_cast<size_t>(op.own_bytes));
  op.missing = 1;  // its start
  for (const bool is_send : {true, false}) {
    for (MpiMessage& message : is_send ? op.sends : op.receives) {
      if (message.bytes == 0) continue;
      ++op.missing;
      Advance(std::make_shared<Flow>(Flow{operation, is_send, message}));
    }
  }
  if (op.sum.count > 0) {
    ++op.missing;
    const auto adding = std::make_shared<Adding>();
    adding->operation = operation;
    adding->piece = op.piece_bytes / int64_t{sizeof(float)};
    for (size_t slot = 0; slot < adding->slots.size(); ++slot) {
      std::vector<float>& received = adding->slots[slot].received;
      if (!scratch_.empty()) {
        received = std::move(scratch_.back());
        scratch_.pop_back();
      }
      received.resize(op.sum.parts.size() * static_cast<size_t>(std::min(adding->piece, op.sum.count)));
      Advance(adding, slot);
    }
  }
  CountDown(operation);
}

void MpiTransfers::CountDown(const std::shared_ptr<MpiOperation>& operation) {
  if (--operation->missing == 0) done_(operation);
}

void MpiTransfers::Advance(const std::shared_ptr<Flow>& flow) {
  const MpiMessage& whole = flow->message;
  while (!stopped_ && flow->in_flight < kPiecesInFlight && flow->posted < whole.bytes) {
    const int64_t n = std::min(flow->operation->piece_bytes, whole.bytes - flow->posted);
    ++flow->in_flight;
    const MpiMessage piece = {whole.peer, whole.tag, static_cast<char*>(whole.data) + flow->posted, n, 0};
    flow->posted += n;
    Post(flow->is_send, piece, [this, flow, n] {
      --flow->in_flight;
      flow->message.moved += n;
      bytes_moved_ += n;
      if (flow->message.moved == flow->message.bytes) return CountDown(flow->operation);
      Advance(flow);
    });
  }
}

// Begins the next piece of a sum in a slot that is free.
void MpiTransfers::Advance(const std::shared_ptr<Adding>& adding, size_t slot) {
  MpiOperation::Sum& sum = adding->operation->sum;
  if (stopped_ || adding->posted == sum.count) return;
  Adding::Slot& piece = adding->slots[slot];
  piece.begin = adding->posted;
  piece.count = std::min(adding->piece, sum.count - adding->posted);
  adding->posted += piece.count;

  std::vector<const float*> parts;
  float* next = piece.received.data();
  for (const MpiMessage& part : sum.parts) {
    if (part.peer == rank_) {
      parts.push_back(static_cast<const float*>(part.data) + piece.begin);
    } else {
      parts.push_back(next);
      next += piece.count;
      ++piece.missing;
    }
  }
  const auto add = [this, adding, slot, parts](MpiMessage& part, int64_t bytes) {
    Adding::Slot& ready = adding->slots[slot];
    part.moved += bytes;
    bytes_moved_ += bytes;
    if (--ready.missing > 0 || stopped_) return;
    const MpiOperation::Sum& its = adding->operation->sum;
    SumInOrder(parts, ready.count, its.sums + ready.begin);
    adding->added += ready.count;
    if (adding->added < its.count) return Advance(adding, slot);
    for (Adding::Slot& done : adding->slots) scratch_.push_back(std::move(done.received));
    CountDown(adding->operation);
  };
  for (size_t p = 0; p < parts.size(); ++p) {
    MpiMessage& part = sum.parts[p];
    if (part.peer == rank_) continue;
    const int64_t bytes = piece.count * int64_t{sizeof(float)};
    Post(/*is_send=*/false, {part.peer, part.tag, const_cast<float*>(parts[p]), bytes, 0},
         [add, &part, bytes] { add(part, bytes); });
  }
}

void MpiTransfers::Post(bool is_send, const MpiMessage& piece, std::function<void()> done) {
  MPI_Request request;
  const int bytes = static_cast<int>(piece.bytes);
  CheckMpi(is_send ? MPI_Issend(piece.data, bytes, MPI_BYTE, piece.peer, piece.tag, comm_, &request)
                   : MPI_Irecv(piece.data, bytes, MPI_BYTE, piece.peer, piece.tag, comm_, &request),
           is_send ? "send" : "receive");
  requests_.push_back(request);
  pieces_.push_back({piece.peer, is_send ? -1 : piece.bytes, std::move(done)});
}

bool MpiTransfers::Poll() {
  if (requests_.empty()) return false;
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int num_done = 0;
  const int result = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &num_done,
                                  indices_.data(), statuses_.data());
  if (result != MPI_ERR_IN_STATUS) CheckMpi(result, "test what is under way");
  if (num_done <= 0) return false;

  std::vector<std::function<void()>> done;  // they post more
  std::string disagreement;
  int failed = MPI_SUCCESS;
  for (int i = 0; i < num_done; ++i) {
    Piece& piece = pieces_[static_cast<size_t>(indices_[static_cast<size_t>(i)])];
    const MPI_Status& status = statuses_[static_cast<size_t>(i)];
    int is_cancelled = 0;
    MPI_Test_cancelled(&status, &is_cancelled);
    if (is_cancelled || stopped_) continue;
    int error_class = MPI_SUCCESS, bytes = 0;
    if (result == MPI_ERR_IN_STATUS) MPI_Error_class(status.MPI_ERROR, &error_class);
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (error_class == MPI_ERR_TRUNCATE || (piece.received_bytes >= 0 && bytes != piece.received_bytes))
      disagreement = fmt::format(
          "internal error: rank {} sent another number of bytes than the {} that rank {} waits for; their "
          "calls are not in the same order",
          piece.peer, piece.received_bytes, rank_);
    else if (error_class != MPI_SUCCESS)
      failed = status.MPI_ERROR;
    else
      done.push_back(std::move(piece.done));
  }
  // Those that have ended are null now; the others keep their order.
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (kept != i) {
      requests_[kept] = requests_[i];
      pieces_[kept] = std::move(pieces_[i]);
    }
    ++kept;
  }
  requests_.resize(kept);
  pieces_.resize(kept);
  if (!disagreement.empty()) throw std::logic_error(disagreement);
  CheckMpi(failed, "move a message");
  for (const auto& tell : done) tell();
  return true;
}

void MpiTransfers::Stop() {
  stopped_ = true;
  for (size_t i = 0; i < requests_.size(); ++i)
    if (pieces_[i].received_bytes >= 0) MPI_Cancel(&requests_[i]);
}

bool MpiTransfers::receives() const {
  return std::ranges::any_of(pieces_, [](const Piece& piece) { return piece.received_bytes >= 0; });
}

}  // namespace longspan
