// Communicators whose ranks really exchange something. Each collective is what a rank pushes to others and
// pulls from them; an implementation says how that gets there.
#pragma once

#include <cstdint>
#include <span>

#include "comm/comm.h"
#include "core/work.h"

namespace longspan {

// What matches in order among itself only: a send between two ranks is never taken for a piece of a
// collective.
enum class Channel { kCollective, kPointToPoint };
inline Channel ChannelOf(WorkKind kind) {
  return kind == WorkKind::kSend || kind == WorkKind::kRecv ? Channel::kPointToPoint : Channel::kCollective;
}

// What an operation sends to one rank of its group.
struct Push {
  int to;
  const void* data;
  int64_t bytes;
};

// What an operation receives: the bytes of one rank of its group or, from several, the f32 sums in rank
// order.
struct Pull {
  int first_from, num_from;
  void* data;
  int64_t bytes;
};

class ExchangeComm : public Comm {
 protected:
  using Comm::Comm;

 private:
  // Starts an operation of this rank. Never blocks.
  virtual Event Post(WorkKind kind, std::span<const Push> pushes, std::span<const Pull> pulls,
                     const Event& after) = 0;

  Event StartAllGather(Tensor send, Tensor recv, std::span<const Range> pieces, const Event& after) final;
  Event StartReduceScatter(Tensor send, Tensor recv, std::span<const Range> pieces, const Event& after) final;
  Event StartAllToAll(Tensor send, std::span<const int64_t> send_bytes, Tensor recv,
                      std::span<const int64_t> recv_bytes, const Event& after) final;
  Event StartSend(Tensor send, int to, const Event& after) final;
  Event StartRecv(Tensor recv, int from, const Event& after) final;
};

// sums[i] = Σ parts[p][i], in order of p. `sums` may be one of the parts.
void SumInOrder(std::span<const float* const> parts, int64_t n, float* sums);

}  // namespace longspan
