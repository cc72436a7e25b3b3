// The model as single-device code: what it computes, for the rows that this rank holds.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "data/packing.h"
#include "mask/mask.h"
#include "model/activations.h"
#include "model/block.h"
#include "model/config.h"
#include "model/options.h"
#include "model/rope_tables.h"
#include "model/weight_store.h"
#include "parallel/layout.h"
#include "parallel/strategy.h"

namespace longspan {

// What one rank holds of a batch. t rows; padding rows have token 0, no target, position 0.
struct Shard {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<int64_t> positions;  // from the start of the row's document
};
Shard TakeShard(const Batch& batch, const Layout& layout, int context_rank);

// One rank's model. Construction allocates what does not change; nothing allocates later but arena scopes.
// Everything passed by reference must outlive it.
class Model {
 public:
  Model(const ModelConfig& config, const ModelOptions& options, Backend& backend, AttentionStrategy& strategy,
        const Layout& layout, WeightStore& weights, ActivationStore& activations);

  // The batch has layout.length() rows. Throws Error for a token or target outside of the vocabulary.
  // Collective over the strategy's ranks, as all three are.

  // Σ of token losses (natural log) over this rank's targets; no gradients.
  double Loss(const Batch& batch, int context_rank);
  // The same, and adds the gradients of (that sum · loss_scale) to the weight store's. loss_scale = 1 /
  // targets of the step. No rank's gradients contain another rank's rows: the caller sums them.
  double LossAndGradients(const Batch& batch, int context_rank, double loss_scale);
  // logits (t, V) f32 of this rank's rows; for tests and small models.
  void Logits(const Batch& batch, int context_rank, Tensor logits);

  // Memory it holds besides the arena, bytes (rotary tables, shard).
  int64_t num_bytes() const;

 private:
  // Copies this rank's rows to where the backend reads them. Valid until the next call.
  Sequence Load(const Batch& batch, int context_rank);
  // Embedding and all blocks: hidden (t, C). With `keep`, activations are kept for the backward pass.
  void Forward(const Sequence& sequence, Tensor hidden, bool keep);
  // hidden (t, C) comes in as the last block's output and goes out as its gradient.
  double HeadLossAndGradients(const Sequence& sequence, Tensor hidden, double loss_scale);
  // What the last norm and the head read (the embedding, if tied); in use until ReleaseHead.
  struct HeadWeights {
    Tensor norm;  // (C)
    Weight head;  // (V, C)
  };
  HeadWeights GetHead();
  void ReleaseHead();
  // normed (n, C) and logits (n, V) f32 of rows of hidden.
  void Head(const HeadWeights& w, Tensor hidden, Tensor normed, Tensor logits);

  int last_unit() const { return static_cast<int>(config_.num_hidden_layers) + 1; }
  Tensor Allocate(std::string_view name, DType dtype, int64_t rows, int64_t width);
  template <class F>
  void ForEachLossChunk(F f);  // f(begin, end), each in an arena scope of its own

  const ModelConfig& config_;
  const ModelOptions options_;
  Backend& backend_;
  const Layout& layout_;
  WeightStore& weights_;
  ActivationStore& activations_;
  OwnedRopeTables rope_tables_;
  Block block_;

  const std::vector<std::vector<Range>> spans_;  // of all context ranks
  const std::vector<int32_t> kv_of_;
  Mask mask_;                            // of the batch loaded last
  Buffer tokens_, targets_, positions_;  // (t): this rank's rows of it
};

}  // namespace longspan
