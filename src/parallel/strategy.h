// AttentionStrategy: exact attention over a sequence that is spread over the ranks of one communicator.
//
// To add one: a file with forward and backward, and a row in StrategyTable(). Tests and --help follow.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "comm/mesh.h"
#include "mask/mask.h"
#include "parallel/layout.h"

namespace longspan {

// What a strategy must know of the sequence and of who holds what. A rank of the strategy's communicator
// holds the rows spans[rank], in that order; every rank the same number.
struct SequenceShards {
  const Mask* mask = nullptr;
  std::span<const std::vector<Range>> spans;  // one list per rank of the communicator
  std::span<const int32_t> kv_of;             // (H) KV head of each local query head
  float scale = 1, soft_cap = 0;              // as in AttentionCall
  Tensor sinks = {};                          // as in AttentionCall: of the local query heads
};

class AttentionStrategy {
 public:
  virtual ~AttentionStrategy() = default;

  // q (t, H, D), k (t, K, D), v (t, K, E) of one dtype → out (t, H, E) of it, lse (t, H) f32.
  virtual void Forward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v,
                       Tensor out, Tensor lse) = 0;
  // From dout, lse and delta = rowsum(out ∘ dout) writes dq, dk, dv, each f32 or of q's dtype. (The sinks'
  // gradient follows from lse and delta alone: Backend::AttentionSinksBackward, then a sum over the ranks.)
  virtual void Backward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v,
                        Tensor dout, Tensor lse, Tensor delta, Tensor dq, Tensor dk, Tensor dv) = 0;
};

// The inner ones work on any communicator; USP is an all-to-all around an inner strategy.
std::unique_ptr<AttentionStrategy> MakeAllGather(Comm& comm);
std::unique_ptr<AttentionStrategy> MakeRing(Comm& comm);
std::unique_ptr<AttentionStrategy> MakeUsp(Comm& ulysses, int num_ring,
                                           std::unique_ptr<AttentionStrategy> inner);

struct StrategyRow {
  std::string_view name;     // as in context_parallel_strategy
  std::string_view summary;  // for --help
  std::unique_ptr<AttentionStrategy> (*make)(Mesh& mesh);
};
std::span<const StrategyRow> StrategyTable();  // all_gather, ring, ulysses, usp
// Throws Error(kUsage) naming the nearest name.
const StrategyRow& FindStrategy(std::string_view name);

}  // namespace longspan
