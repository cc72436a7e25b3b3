// One transformer block, forward and backward, for the rows that this rank holds.
//
//   n = Norm(x; g₁)        q, k = RoPE(n Wqᵀ), RoPE(n Wkᵀ)     v = n Wvᵀ     c = Attention(q, k, v)
//   h = x + c Woᵀ
//   m = Norm(h; g₂)        y = h + (act(m Wgᵀ) ∘ (m Wuᵀ)) Wdᵀ
//
// A model may have biases in its products, norms of each head of q and k before RoPE, and norms of what
// attention and the feed-forward layer give before it is added to x and h (sandwich norms). Which it has are
// switches of ModelConfig.
//
// Attention alone looks across rows, and so across ranks: it is the strategy's. All else works row by row and
// goes through `mlp_chunk_rows` rows at a time, so that what lies between x and y never exists for all rows
// at once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/chunks.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/options.h"
#include "model/params.h"
#include "model/sequence.h"
#include "model/weight_store.h"
#include "parallel/strategy.h"

namespace longspan {

// Every layer's code; weights, gradients and activations come by layer. All references must outlive it.
class Block {
 public:
  // `strategies`: the attention of each layer (L).
  Block(const ModelConfig& config, const ModelOptions& options, Backend& backend,
        std::span<AttentionStrategy* const> strategies, ActivationStore& activations);

  using Weights = std::array<Weight, kNumBlockParams>;    // by BlockParam
  using Gradients = std::array<Tensor, kNumBlockParams>;  // likewise, f32

  // x, y (t, C), which may be the same. With `keep`, activations go to the store, as the backward pass needs
  // it; x is the store's already. `weights` are a unit's.
  void Forward(int layer, std::span<const Weight> weights, const Sequence& sequence, Tensor x, Tensor y,
               bool keep);

  // In place: dresidual (t, C) comes in as dy and goes out as dx. Adds to `gradients`, a unit's, f32.
  void Backward(int layer, std::span<const Weight> weights, std::span<const Tensor> gradients,
                const Sequence& sequence, Tensor dresidual);

 private:
  // Of one layer, or of a chunk of its rows, by Activation; null: never exists for all rows at once.
  using Activations = std::array<Tensor, kNumActivations>;
  static Activations RowsOf(const Activations& a, int64_t begin, int64_t end);

  // What one layer's attention goes by, for one sequence.
  struct Layer {
    AttentionStrategy& attention;
    Tensor positions;  // (t)
    const LayerInputs& inputs;
  };
  Layer LayerOf(int layer, const Sequence& sequence) const;

  // In the backward pass: what attention reads and writes, from the store or computed again, and what else is
  // in the store.
  Activations Recall(int layer, const Layer& at, const Weights& w, Tensor x);
  // Writes those of query_proj, key_proj and value_proj that aren't null, from x.
  void Project(const Layer& at, const Weights& w, Tensor x, const Activations& out);
  void ProjectBackward(const Weights& w, const Gradients& dw, Tensor x, Tensor dq, Tensor dk, Tensor dv,
                       Tensor dresidual);
  void Attend(const Layer& at, const Activations& a);

  // What follows attention, rows of one chunk. What of it isn't kept is recomputed in the backward pass.
  struct FeedForward {
    Tensor attention_out;  // (n, C): out_proj; may be h where nothing else needs it
    Tensor h, m;           // (n, C)
    Tensor gate, up, act;  // (n, F)
  };
  // `a`: of the chunk. Those behind context are the store's or null; with `recall` they hold what they held
  // after the forward pass, else they are written.
  FeedForward FeedForwardIn(const Weights& w, Tensor x, const Activations& a, bool recall);
  void FeedForwardBackward(const Weights& w, const Gradients& dw, Tensor x, const Activations& a,
                           Tensor dresidual, Tensor dcontext);

  Norm NormOf(const Weights& w, BlockParam param) const;
  // Puts the gradient of x in y = Norm(x) in the place of x, which it returns.
  Tensor NormBackwardInPlace(const Weights& w, const Gradients& dw, BlockParam param, Tensor x, Tensor dy);

  Tensor Allocate(std::string_view name, int64_t rows, int64_t width);  // of the run's dtype
  Tensor AllocateActivation(Activation id, int64_t rows);
  // Calls f(begin, end) for each chunk of [0, rows), each in a scope of its own.
  template <class F>
  void ForEachChunk(int64_t rows, F f) {
    longspan::ForEachChunk(backend_, rows, options_.mlp_chunk_rows, f);
  }

  const ModelConfig& config_;
  const ModelOptions& options_;
  Backend& backend_;
  const std::vector<AttentionStrategy*> strategies_;
  ActivationStore& activations_;
  const std::vector<BlockParam> params_;
};

}  // namespace longspan
