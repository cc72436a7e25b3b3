// One transformer block of a Llama, forward and backward, for the rows that this rank holds.
//
//   n = RmsNorm(x; g₁)     q, k = RoPE(n Wqᵀ), RoPE(n Wkᵀ)     v = n Wvᵀ     c = Attention(q, k, v)
//   h = x + c Woᵀ
//   m = RmsNorm(h; g₂)     y = h + (silu(m Wgᵀ) ∘ (m Wuᵀ)) Wdᵀ
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

  using Weights = std::span<const Weight>;    // by BlockParam
  using Gradients = std::span<const Tensor>;  // likewise, f32

  // x, y (t, C), which may be the same. With `keep`, activations go to the store, as the backward pass needs
  // it; x is the store's already.
  void Forward(int layer, Weights w, const Sequence& sequence, Tensor x, Tensor y, bool keep);

  // In place: dresidual (t, C) comes in as dy and goes out as dx. Adds to dw.
  void Backward(int layer, Weights w, Gradients dw, const Sequence& sequence, Tensor dresidual);

 private:
  // What the attention of one layer reads and writes: query_proj … context_lse, by Activation.
  using Activations = std::array<Tensor, kNumActivations>;

  // What one layer's attention goes by, for one sequence.
  struct Layer {
    AttentionStrategy& attention;
    Tensor positions;  // (t)
    const LayerInputs& inputs;
  };
  Layer LayerOf(int layer, const Sequence& sequence) const;

  // The inputs and outputs of attention in the backward pass: taken from the store, else computed again.
  Activations Recall(int layer, const Layer& at, Weights w, Tensor x);
  // Writes those of query_proj, key_proj and value_proj that aren't null, from x.
  void Project(const Layer& at, Weights w, Tensor x, const Activations& out);
  void ProjectBackward(Weights w, Gradients dw, Tensor x, Tensor dq, Tensor dk, Tensor dv, Tensor dresidual);
  void Attend(const Layer& at, const Activations& a);

  // What follows attention, rows of one chunk. h, m, gate, up and act are recomputed in the backward pass.
  struct FeedForward {
    Tensor h, m;           // (n, C)
    Tensor gate, up, act;  // (n, F)
  };
  FeedForward FeedForwardIn(Weights w, Tensor x, Tensor context);
  void FeedForwardBackward(Weights w, Gradients dw, Tensor x, Tensor context, Tensor dresidual,
                           Tensor dcontext);

  Tensor Allocate(std::string_view name, int64_t rows, int64_t width);  // of the run's dtype
  Tensor AllocateActivation(Activation id, int64_t rows);
  // Calls f(begin, end) for each chunk of [0, rows), each in a scope of its own.
  template <class F>
  void ForEachChunk(int64_t rows, F f);

  const ModelConfig& config_;
  const ModelOptions& options_;
  Backend& backend_;
  const std::vector<AttentionStrategy*> strategies_;
  ActivationStore& activations_;
};

}  // namespace longspan
