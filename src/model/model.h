// The model as single-device code: what it computes, for the rows that this rank holds.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "data/packing.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/params.h"
#include "model/weight_store.h"
#include "parallel/layout.h"
#include "parallel/strategy.h"

namespace longspan {

// What one rank holds of a batch. t rows; padding rows have token 0, no target, position 0.
struct Shard {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<int64_t> positions;   // from the start of the row's document
};
Shard TakeShard(const Batch& batch, const Layout& layout, int context_rank);

struct ModelOptions {
  DType dtype = DType::kFloat32;
  MaskSpec mask;
  int64_t max_target_length = 0;    // T; rotary tables reach so far
  int64_t mlp_chunk_rows = 1024;    // SwiGLU goes through this many rows at a time
  int64_t loss_chunk_rows = 256;    // head and loss likewise: never (t, V) at once
};

// One rank's model. Construction allocates what does not change; nothing allocates later but arena scopes.
class Model {
 public:
  Model(const ModelConfig& config, const ModelOptions& options, Backend& backend, AttentionStrategy& strategy,
        const Layout& layout, WeightStore& weights, ActivationStore& activations);

  // Σ of token losses (natural log) over this rank's targets; no gradients.
  double Loss(const Batch& batch, int context_rank);
  // The same, and adds the gradients of (that sum · loss_scale) to the weight store's. loss_scale = 1 / targets of the step.
  double LossAndGradients(const Batch& batch, int context_rank, double loss_scale);
  // logits (t, V) f32 of this rank's rows; for tests and small models.
  void Logits(const Batch& batch, int context_rank, Tensor logits);

  // Memory it holds besides the arena, bytes (rotary tables, shard).
  int64_t num_bytes() const;

 private:
  struct Sequence;  // a batch as this rank sees it
  // …
};

}  // namespace longspan
