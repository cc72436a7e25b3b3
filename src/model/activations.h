// The one table of a layer's named activations, and where the kept ones live.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "model/config.h"

namespace longspan {

// Names are MaxText's. What is not kept is recomputed in the backward pass from the nearest one kept.
enum class Activation { kDecoderLayerInput, kQueryProj, kKeyProj, kValueProj, kContext, kContextLse };
inline constexpr int kNumActivations = 6;

struct ActivationRow {
  Activation id;
  std::string_view name;             // "decoder_layer_input", "query_proj" (after RoPE), …, "context", "context_lse"
  std::string_view recomputed_from;  // "" : can't be recomputed, always kept
};
std::span<const ActivationRow> ActivationTable();

// Dtype and shape of one for t rows; `dtype` is the run's.
Tensor ActivationShape(const ModelConfig& config, Activation id, int64_t rows, DType dtype);  // no data

class ActivationStore {
 public:
  virtual ~ActivationStore() = default;
  virtual bool Kept(Activation id) const = 0;
  // Forward: where to write it (only if Kept), then that it is written.
  virtual Tensor Slot(int layer, Activation id) = 0;
  virtual void Keep(int layer, Activation id) = 0;
  // Backward: will be needed soon; give it back (only if Kept).
  virtual void Prefetch(int layer) = 0;
  virtual Tensor Take(int layer, Activation id) = 0;
};

// Everything kept stays in memory.
class ResidentActivationStore final : public ActivationStore {
 public:
  // `measure`: shapes only, no memory (a dry run).
  ResidentActivationStore(const ModelConfig& config, int64_t rows, DType dtype, std::set<Activation> kept, bool measure);
  bool Kept(Activation id) const override;
  Tensor Slot(int layer, Activation id) override;
  void Keep(int layer, Activation id) override;
  void Prefetch(int layer) override;
  Tensor Take(int layer, Activation id) override;
  int64_t num_bytes() const;                     // all layers
  int64_t num_bytes(Activation id) const;        // of one name, all layers

 private:
  const ModelConfig& config_;
  int64_t rows_;
  DType dtype_;
  std::set<Activation> kept_;
  int64_t layer_bytes_ = 0;
  Buffer buffer_;
};

}  // namespace longspan
