#include "comm/exchange.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace longspan {
namespace {

// Where a piece lies in a tensor's memory. (An empty tensor may have none.)
void* At(const Tensor& tensor, int64_t byte) {
  return tensor.raw() == nullptr ? nullptr : static_cast<char*>(tensor.raw()) + byte;
}

}  // namespace

Event ExchangeComm::StartAllGather(Tensor send, Tensor recv, std::span<const Range> pieces,
                                   const Event& after) {
  const int64_t element = SizeOf(recv.dtype());
  std::vector<Push> pushes;
  std::vector<Pull> pulls;
  for (int p = 0; p < size(); ++p) {
    const Range& piece = pieces[static_cast<size_t>(p)];
    pushes.push_back({p, send.raw(), send.num_bytes()});
    pulls.push_back({p, 1, At(recv, piece.begin * element), piece.size() * element});
  }
  return Post(WorkKind::kAllGather, pushes, pulls, after);
}

Event ExchangeComm::StartReduceScatter(Tensor send, Tensor recv, std::span<const Range> pieces,
                                       const Event& after) {
  const int64_t element = SizeOf(DType::kFloat32);
  std::vector<Push> pushes;
  for (int p = 0; p < size(); ++p) {
    const Range& piece = pieces[static_cast<size_t>(p)];
    pushes.push_back({p, At(send, piece.begin * element), piece.size() * element});
  }
  const Pull pull = {0, size(), recv.raw(), recv.num_bytes()};
  return Post(WorkKind::kReduceScatter, pushes, {&pull, 1}, after);
}

Event ExchangeComm::StartAllToAll(Tensor send, std::span<const int64_t> send_bytes, Tensor recv,
                                  std::span<const int64_t> recv_bytes, const Event& after) {
  std::vector<Push> pushes;
  std::vector<Pull> pulls;
  int64_t sent = 0, received = 0;
  for (int p = 0; p < size(); ++p) {
    const int64_t out = send_bytes[static_cast<size_t>(p)], in = recv_bytes[static_cast<size_t>(p)];
    pushes.push_back({p, At(send, sent), out});
    pulls.push_back({p, 1, At(recv, received), in});
    sent += out;
    received += in;
  }
  return Post(WorkKind::kAllToAll, pushes, pulls, after);
}

Event ExchangeComm::StartSend(Tensor send, int to, const Event& after) {
  const Push push = {to, send.raw(), send.num_bytes()};
  return Post(WorkKind::kSend, {&push, 1}, {}, after);
}

Event ExchangeComm::StartRecv(Tensor recv, int from, const Event& after) {
  const Pull pull = {from, 1, recv.raw(), recv.num_bytes()};
  return Post(WorkKind::kRecv, {}, {&pull, 1}, after);
}

void SumInOrder(std::span<const float* const> parts, int64_t n, float* sums) {
  // By way of a buffer, because the sums may lie over one of the parts; one that stays in the L1 cache.
  std::array<float, 2048> buffer;
  for (int64_t begin = 0; begin < n; begin += std::ssize(buffer)) {
    const int64_t count = std::min<int64_t>(std::ssize(buffer), n - begin);
    const size_t num_bytes = static_cast<size_t>(count) * sizeof(float);
    std::memcpy(buffer.data(), parts[0] + begin, num_bytes);
    for (size_t p = 1; p < parts.size(); ++p) {
      const float* values = parts[p] + begin;
      for (int64_t i = 0; i < count; ++i) buffer[static_cast<size_t>(i)] += values[i];
    }
    std::memcpy(sums + begin, buffer.data(), num_bytes);
  }
}

}  // namespace longspan
