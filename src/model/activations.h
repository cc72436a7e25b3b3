// The one table of a layer's named activations, what becomes of each, and where the kept ones live.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/check.h"
#include "core/tensor.h"
#include "model/config.h"

namespace longspan {

// Names and meanings are MaxText's: query_proj and key_proj are after RoPE; out_proj and mlpwo are what the
// products with those weights give, before any norm of it and before it is added to the residual stream;
// mlpwi_0 is the gate before its activation, mlpwi_1 what is gated. What is not kept is recomputed in the
// backward pass from the nearest ones kept.
enum class Activation {
  kDecoderLayerInput,
  kQueryProj,
  kKeyProj,
  kValueProj,
  kContext,
  kContextLse,
  kOutProj,
  kMlpwi0,
  kMlpwi1,
  kMlpwo,
};
inline constexpr int kNumActivations = 10;

struct ActivationRow {
  Activation id;
  std::string_view name;
  std::vector<Activation> recomputed_from;  // empty: can't be recomputed, always kept
};
std::span<const ActivationRow> ActivationTable();  // in the order of Activation
const ActivationRow& RowOf(Activation id);

// Dtype and shape of one for t rows; `dtype` is the run's. decoder_layer_input, out_proj and mlpwo (t, C),
// query_proj (t, H, D), key_proj and value_proj (t, K, D), context (t, H, E), context_lse (t, H) f32, mlpwi_0
// and mlpwi_1 (t, F).
Tensor ActivationShape(const ModelConfig& config, Activation id, int64_t rows, DType dtype);  // no data

// Whether the backward pass of such a model ever reads it: mlpwo is for a norm of it alone (Gemma).
bool IsRead(const ModelConfig& config, Activation id);

// Where an activation is between the forward and the backward pass of its layer: on the device, elsewhere
// until it is needed, or nowhere, to be recomputed.
enum class Placement { kDevice, kOffload, kRemat };

// The placement of each. The log-sum-exp goes with its context.
class ActivationPolicy {
 public:
  // Nothing kept: of a model that only runs forward.
  ActivationPolicy() { placements_.fill(Placement::kRemat); }
  // These on the device, the others recomputed.
  ActivationPolicy(std::initializer_list<Activation> kept) : ActivationPolicy() {
    for (const Activation id : kept) Set(id, Placement::kDevice);
  }

  Placement Of(Activation id) const { return placements_[static_cast<size_t>(id)]; }
  bool Keeps(Activation id) const { return Of(id) != Placement::kRemat; }
  ActivationPolicy& Set(Activation id, Placement placement) {
    CHECK(id != Activation::kContextLse);
    placements_[static_cast<size_t>(id)] = placement;
    if (id == Activation::kContext) placements_[static_cast<size_t>(Activation::kContextLse)] = placement;
    return *this;
  }
  friend bool operator==(const ActivationPolicy&, const ActivationPolicy&) = default;

 private:
  std::array<Placement, kNumActivations> placements_;
};

class ActivationStore {
 public:
  virtual ~ActivationStore() = default;
  virtual bool Kept(Activation id) const = 0;
  // Forward: where to write it (only if Kept), then that it is written. What is written may still be read
  // until that of the layer after the next is asked for.
  virtual Tensor Slot(int layer, Activation id) = 0;
  virtual void Keep(int layer, Activation id) = 0;
  // Backward: will be needed soon; give it back (only if Kept), once, to whoever may then write over it.
  virtual void Prefetch(int layer) = 0;
  virtual Tensor Take(int layer, Activation id) = 0;
};

// Stays on the device.
class ResidentActivationStore final : public ActivationStore {
 public:
  // Holds what `policy` has on the device; it keeps, somewhere, at least what can't be recomputed, or
  // nothing. `measure`: addresses and sizes but no memory (a dry run).
  ResidentActivationStore(const ModelConfig& config, int64_t rows, DType dtype,
                          const ActivationPolicy& policy, bool measure);
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
