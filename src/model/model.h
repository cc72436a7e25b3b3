// The model as single-device code: what it computes, for the rows that this rank holds.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/chunks.h"
#include "model/activations.h"
#include "model/block.h"
#include "model/config.h"
#include "model/options.h"
#include "model/sequence.h"
#include "model/weight_store.h"
#include "parallel/strategy.h"

namespace longspan {

// One rank's model. It knows its rows and, through the strategies, whoever shares their sequence; nothing of
// ranks or layouts. Nothing allocates but arena scopes. Everything passed by reference must outlive it.
class Model {
 public:
  // `strategies`: the attention of each layer (L).
  Model(const ModelConfig& config, const ModelOptions& options, Backend& backend,
        std::span<AttentionStrategy* const> strategies, WeightStore& weights, ActivationStore& activations);

  // All are collective over the strategies' ranks, but for the logits of hidden rows.

  // Σ of token losses (natural log) over this rank's targets; no gradients.
  double Loss(const Sequence& sequence);
  // Of each row: its loss, f32 (t), 0 without a target; and the greedy choice, the lowest id of the largest
  // logit, int32 (t). (Of a padding row: something.)
  void TokenLosses(const Sequence& sequence, Tensor losses, Tensor argmax);
  // The same as Loss, and adds the gradients of (that sum · loss_scale) to the weight store's. loss_scale = 1
  // / targets of the step. No rank's gradients contain another rank's rows: the store, or whoever reads it,
  // sums them.
  double LossAndGradients(const Sequence& sequence, double loss_scale);
  // Embedding and all blocks: writes hidden (t, C), of the run's dtype.
  void Hidden(const Sequence& sequence, Tensor hidden) { Forward(sequence, hidden, /*keep=*/false); }
  // The last norm and the head: logits (n, V) f32 of rows of hidden (n, C).
  void Logits(Tensor hidden, Tensor logits);
  // logits (t, V) f32 of this rank's rows; for tests and small models.
  void Logits(const Sequence& sequence, Tensor logits);

 private:
  // Hidden; with `keep`, activations are kept for the backward pass.
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
  // normed (n, C) and logits (n, V) f32, capped if the model does so, of rows of hidden.
  void Head(const HeadWeights& w, Tensor hidden, Tensor normed, Tensor logits);

  Norm FinalNorm(const HeadWeights& w) const;
  // x *= the model's embedding scale, which has the run's dtype as in transformers.
  void ScaleEmbedding(Tensor x);
  float final_soft_cap() const { return static_cast<float>(config_.final_soft_cap); }

  int last_unit() const { return static_cast<int>(config_.num_hidden_layers) + 1; }
  Tensor Allocate(std::string_view name, DType dtype, int64_t rows, int64_t width);
  // f(begin, end, logits (n, V) f32) for each chunk of rows, without a backward pass.
  template <class F>
  void ForEachLogits(const Sequence& sequence, F f);
  template <class F>
  void ForEachLossChunk(int64_t rows, F f) {  // f(begin, end)
    ForEachChunk(backend_, rows, options_.loss_chunk_rows, f);
  }

  const ModelConfig& config_;
  const ModelOptions options_;
  Backend& backend_;
  WeightStore& weights_;
  ActivationStore& activations_;
  Block block_;
};

}  // namespace longspan
