// The ActivationStore that a policy describes: some activations stay on the device, some wait for the
// backward pass in a tier beside it.
#pragma once

#include <array>
#include <cstdint>

#include "backend/backend.h"
#include "core/arena.h"
#include "model/activations.h"
#include "train/tier.h"

namespace longspan {

// An offloaded activation has two tensors on the device, which the layers take in turn: one is written to the
// tier, or read from it, while the layer beside it computes in the other. All layers are written. The last
// two are still on the device when the backward pass asks for them, and aren't read.
class OffloadedActivations final : public ActivationStore {
 public:
  // Of `rows` rows. `backend`, through which it waits, and `tier`, of which it takes slots, outlive this.
  OffloadedActivations(const ModelConfig& config, int64_t rows, DType dtype, const ActivationPolicy& policy,
                       Backend& backend, Tier& tier);
  ~OffloadedActivations() override { tier_.Finish(); }

  bool Kept(Activation id) const override { return resident_.Kept(id) || Offloaded(id); }
  Tensor Slot(int layer, Activation id) override;
  void Keep(int layer, Activation id) override;
  void Prefetch(int layer) override;
  Tensor Take(int layer, Activation id) override;

  // What never leaves the device, and the tensors on it of what does.
  const ResidentActivationStore& resident() const { return resident_; }
  int64_t in_flight_bytes() const { return arena_.used_bytes(); }

 private:
  // One of an activation's two tensors on the device.
  struct InFlight {
    Tensor tensor;
    int layer = -1;  // whose it holds or will hold, once `moved` has happened
    Event moved;     // to the tier, or from it
  };
  static size_t Index(Activation id) { return static_cast<size_t>(id); }
  bool Offloaded(Activation id) const { return !in_flight_[Index(id)][0].tensor.IsNull(); }
  InFlight& Of(int layer, Activation id);
  int SlotOf(int layer, Activation id) const;

  Backend& backend_;
  Tier& tier_;
  const int num_layers_;
  ResidentActivationStore resident_;
  Arena arena_;
  std::array<std::array<InFlight, 2>, kNumActivations> in_flight_;
  int first_slot_;  // in the tier
};

// Whether it leaves anything to a tier.
bool AnyOffloaded(const ActivationPolicy& policy);

}  // namespace longspan
