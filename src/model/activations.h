// The one table of a layer's named activations, and where the kept ones live.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/tensor.h"
#include "model/config.h"

namespace longspan {

// Names are MaxText's. What is not kept is recomputed in the backward pass from the nearest one kept.
enum class Activation { kDecoderLayerInput, kQueryProj, kKeyProj, kValueProj, kContext, kContextLse };
inline constexpr int kNumActivations = 6;

struct ActivationRow {
  Activation id;
  std::string_view name;                    // "decoder_layer_input", "query_proj" (after RoPE), …
  std::vector<Activation> recomputed_from;  // empty: can't be recomputed, always kept
};
std::span<const ActivationRow> ActivationTable();  // in the order of Activation
const ActivationRow& RowOf(Activation id);

// Dtype and shape of one for t rows; `dtype` is the run's. decoder_layer_input (t, C), query_proj (t, H, D),
// key_proj and value_proj (t, K, D), context (t, H, E), context_lse (t, H) f32.
Tensor ActivationShape(const ModelConfig& config, Activation id, int64_t rows, DType dtype);  // no data

class ActivationStore {
 public:
  virtual ~ActivationStore() = default;
  virtual bool Kept(Activation id) const = 0;
  // Forward: where to write it (only if Kept), then that it is written. What is written may still be read
  // until the next layer's is asked for.
  virtual Tensor Slot(int layer, Activation id) = 0;
  virtual void Keep(int layer, Activation id) = 0;
  // Backward: will be needed soon; give it back (only if Kept).
  virtual void Prefetch(int layer) = 0;
  virtual Tensor Take(int layer, Activation id) = 0;
};

// Everything kept stays in memory.
class ResidentActivationStore final : public ActivationStore {
 public:
  // `kept` holds at least what can't be recomputed, or nothing: of a model that only runs forward. `measure`:
  // addresses and sizes but no memory (a dry run).
  ResidentActivationStore(const ModelConfig& config, int64_t rows, DType dtype,
                          const std::set<Activation>& kept, bool measure);
  bool Kept(Activation id) const override { return !slots_[Index(id)].empty(); }
  Tensor Slot(int layer, Activation id) override { return At(layer, id); }
  void Keep(int, Activation) override {}
  void Prefetch(int) override {}
  Tensor Take(int layer, Activation id) override { return At(layer, id); }
  int64_t num_bytes() const;               // all layers
  int64_t num_bytes(Activation id) const;  // of one name, all layers

 private:
  static size_t Index(Activation id) { return static_cast<size_t>(id); }
  const Tensor& At(int layer, Activation id) const;

  Arena arena_;
  std::array<std::vector<Tensor>, kNumActivations> slots_;  // by layer; empty if not kept
};

}  // namespace longspan
