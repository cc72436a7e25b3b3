// The ActivationStore that a policy describes: some activations stay on the device, some wait for the
// backward pass in a tier beside it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

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
  // Of `rows` rows. `directory`: of the tier, empty for host memory. `background`, which is null if and only
  // if the backend is dry or nothing is offloaded, and `backend`, through which it waits, outlive this.
  // Throws as Tier does.
  OffloadedActivations(const ModelConfig& config, int64_t rows, DType dtype, const ActivationPolicy& policy,
                       const std::string& directory, Backend& backend, Background* background,
                       const OffloadHooks& hooks = {});

  bool Kept(Activation id) const override { return resident_.Kept(id) || Offloaded(id); }
  Tensor Slot(int layer, Activation id) override;
  void Keep(int layer, Activation id) override;
  void Prefetch(int layer) override;
  Tensor Take(int layer, Activation id) override;

  // What never leaves the device, and the tensors on it of what does.
  const ResidentActivationStore& resident() const { return resident_; }
  int64_t in_flight_bytes() const { return arena_.used_bytes(); }
  const Tier& tier() const { return tier_; }
  double wait_seconds() const { return wait_seconds_; }  // of the backend's, those for the tier

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
  void Wait(const Event& event);

  Backend& backend_;
  const int num_layers_;
  ResidentActivationStore resident_;
  Arena arena_;
  std::array<std::array<InFlight, 2>, kNumActivations> in_flight_;
  Tier tier_;  // below what its transfers read and write
  double wait_seconds_ = 0;
};

// Whether a tier has anything to hold.
bool AnyOffloaded(const ActivationPolicy& policy);

}  // namespace longspan
