// Decoder: a model that reads a text piece by piece and remembers the keys and values of what it has read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/activations.h"
#include "model/model.h"

namespace longspan {

// Attention of one layer over all rows that it has been given since it was made: a cache of keys and values
// that each call adds its own to. Its calls are about the rows that follow those of the calls before; of
// SequenceShards it needs no spans. There is no backward pass.
class CachedAttention final : public AttentionStrategy {
 public:
  CachedAttention(const ModelConfig& config, DType dtype, int64_t capacity);

  void Forward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v, Tensor out,
               Tensor lse) override;
  void Backward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v, Tensor dout,
                Tensor lse, Tensor delta, Tensor dq, Tensor dk, Tensor dv) override;

 private:
  Buffer keys_, values_;  // (capacity, K, D)
  int64_t length_ = 0;
};

// One rank. Memory: 2 · L · capacity · K · D elements of the run's dtype.
class Decoder {
 public:
  // Reads at most options.max_target_length tokens. Everything passed by reference must outlive it.
  Decoder(const ModelConfig& config, const ModelOptions& options, Backend& backend, WeightStore& weights);

  // Reads tokens behind those it has read; one at least. Gives the logits (V) of what follows the last one,
  // f32, valid until the next call. The same as Model::Logits of the whole text, within rounding. Throws
  // Error for a token outside of the vocabulary.
  std::span<const float> Read(std::span<const int32_t> tokens);

  static int64_t CacheBytes(const ModelConfig& config, const ModelOptions& options);

 private:
  Tensor ReadChunk(std::span<const int32_t> tokens);  // gives its last hidden row (1, C)

  const ModelConfig& config_;
  const ModelOptions& options_;
  std::vector<std::unique_ptr<CachedAttention>> attention_;  // by layer
  ResidentActivationStore activations_;                      // none
  Model model_;
  std::vector<OwnedRopeTables> rope_tables_;  // by layer kind
  const std::vector<int32_t> kv_of_;
  std::vector<Mask> masks_;         // by layer kind
  std::vector<LayerInputs> kinds_;  // by layer kind
  Buffer tokens_, positions_, hidden_, logits_;
  int64_t length_ = 0;  // tokens read
};

}  // namespace longspan
