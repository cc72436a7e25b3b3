#include "comm/comm.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "core/clock.h"

namespace longspan {
namespace {

bool IsF32(const Tensor& tensor) { return tensor.dtype() == DType::kFloat32; }

int64_t Sum(std::span<const int64_t> values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

Tensor BytesOf(std::vector<double>& values) {
  return Tensor(values.data(), DType::kByte, {static_cast<int64_t>(values.size() * sizeof(double))});
}

}  // namespace

Comm::Comm(int rank, int size, std::shared_ptr<Counts> counts)
    : rank_(rank), size_(size), counts_(std::move(counts)), world_ranks_(static_cast<size_t>(size)) {
  std::iota(world_ranks_.begin(), world_ranks_.end(), 0);
}

Event Comm::Report(WorkKind kind, int64_t bytes, int peer, const Event& after, const Event& done) {
  if (recorder_ == nullptr || bytes == 0) return done;
  Work work;
  work.kind = kind;
  work.bytes = bytes;
  work.ranks = world_ranks_;
  work.peer = peer;
  return recorder_->Transfer(work, after, done);
}

void Comm::Finish(const Event& event) {
  const double start = Now();
  if (recorder_ != nullptr) recorder_->Wait(event);
  event.Wait();
  counts_->wait_seconds += Now() - start;
}

void Comm::CountMessage(int to, int64_t bytes) {
  if (to == rank_ || bytes == 0) return;
  counts_->traffic.bytes_sent += bytes;
  counts_->traffic.messages_sent += 1;
}

std::unique_ptr<Comm> Comm::Subgroup(std::span<const int> ranks) {
  int my_place = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    CHECK(ranks[i] >= 0 && ranks[i] < size_);
    CHECK(std::count(ranks.begin(), ranks.end(), ranks[i]) == 1);
    if (ranks[i] == rank_) my_place = static_cast<int>(i);
  }
  CHECK(my_place >= 0);
  std::unique_ptr<Comm> group = MakeSubgroup(ranks, my_place);
  for (size_t i = 0; i < ranks.size(); ++i)
    group->world_ranks_[i] = world_ranks_[static_cast<size_t>(ranks[i])];
  group->recorder_ = recorder_;
  return group;
}

std::vector<Range> Comm::EvenPieces(int64_t total) const {
  std::vector<Range> pieces;
  for (int64_t p = 0; p < size_; ++p) pieces.push_back({total * p / size_, total * (p + 1) / size_});
  return pieces;
}

const Range& Comm::Mine(std::span<const Range> pieces) const {
  CHECK(std::ssize(pieces) == size_);
  return pieces[static_cast<size_t>(rank_)];
}

Event Comm::AllGather(Tensor send, Tensor recv, const Event& after) {
  CHECK(recv.num_bytes() == size_ * send.num_bytes());
  return AllGather(send, recv, EvenPieces(recv.num_elements()), after);
}

Event Comm::ReduceScatter(Tensor send, Tensor recv, const Event& after) {
  CHECK(send.num_bytes() == size_ * recv.num_bytes());
  return ReduceScatter(send, recv, EvenPieces(send.num_elements()), after);
}

Event Comm::AllGather(Tensor send, Tensor recv, std::span<const Range> pieces, const Event& after) {
  CHECK(send.num_bytes() == Mine(pieces).size() * SizeOf(recv.dtype()));
  for (int p = 0; p < size_; ++p) CountMessage(p, send.num_bytes());
  return Report(WorkKind::kAllGather, (size_ - 1) * send.num_bytes(), -1, after,
                StartAllGather(send, recv, pieces, after));
}

Event Comm::ReduceScatter(Tensor send, Tensor recv, std::span<const Range> pieces, const Event& after) {
  CHECK(IsF32(send) && IsF32(recv));
  CHECK(recv.num_elements() == Mine(pieces).size());
  for (int p = 0; p < size_; ++p)
    CountMessage(p, pieces[static_cast<size_t>(p)].size() * SizeOf(DType::kFloat32));
  return Report(WorkKind::kReduceScatter, send.num_bytes() - recv.num_bytes(), -1, after,
                StartReduceScatter(send, recv, pieces, after));
}

Event Comm::AllToAll(Tensor send, std::span<const int64_t> send_bytes, Tensor recv,
                     std::span<const int64_t> recv_bytes, const Event& after) {
  CHECK(std::ssize(send_bytes) == size_ && std::ssize(recv_bytes) == size_);
  CHECK(Sum(send_bytes) == send.num_bytes() && Sum(recv_bytes) == recv.num_bytes());
  for (int p = 0; p < size_; ++p) CountMessage(p, send_bytes[static_cast<size_t>(p)]);
  return Report(WorkKind::kAllToAll, send.num_bytes() - send_bytes[static_cast<size_t>(rank_)], -1, after,
                StartAllToAll(send, send_bytes, recv, recv_bytes, after));
}

Event Comm::Send(Tensor send, int to, const Event& after) {
  CHECK(to >= 0 && to < size_);
  CountMessage(to, send.num_bytes());
  return Report(WorkKind::kSend, to == rank_ ? 0 : send.num_bytes(), to, after, StartSend(send, to, after));
}

Event Comm::Recv(Tensor recv, int from, const Event& after) {
  CHECK(from >= 0 && from < size_);
  return Report(WorkKind::kRecv, from == rank_ ? 0 : recv.num_bytes(), from, after,
                StartRecv(recv, from, after));
}

void Comm::AllReduceSum(Tensor values) {
  CHECK(IsF32(values));
  const Tensor flat = values.Reshape({values.num_elements()});
  const std::vector<Range> pieces = EvenPieces(flat.num_elements());
  const Tensor mine = flat.Rows(Mine(pieces).begin, Mine(pieces).end);
  Finish(ReduceScatter(flat, mine, pieces));
  Finish(AllGather(mine, flat, pieces));
}

double Comm::SumOverRanks(double value) {
  SumOverRanks(std::span(&value, 1));
  return value;
}

void Comm::SumOverRanks(std::span<double> values) {
  std::vector<double> mine(values.begin(), values.end()), all;
  for (int p = 0; p < size_; ++p)
    all.insert(all.end(), values.begin(), values.end());  // what a dry gather leaves
  Finish(AllGather(BytesOf(mine), BytesOf(all)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 0;
    for (size_t p = 0; p < static_cast<size_t>(size_); ++p) values[i] += all[p * values.size() + i];
  }
}

void Comm::Barrier() {
  uint8_t mine = 0;
  std::vector<uint8_t> all(static_cast<size_t>(size_));
  Finish(AllGather(Tensor(&mine, DType::kByte, {1}), Tensor(all.data(), DType::kByte, {size_})));
}

AbortOnUnwind::AbortOnUnwind(Comm& comm) : comm_(comm), exceptions_before_(std::uncaught_exceptions()) {}

AbortOnUnwind::~AbortOnUnwind() {
  if (std::uncaught_exceptions() > exceptions_before_) comm_.Abort("an error ended its work");
}

}  // namespace longspan
