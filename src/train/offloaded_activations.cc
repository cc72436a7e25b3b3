#include "train/offloaded_activations.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/check.h"

namespace longspan {
namespace {

// Of an activation's tensor on the device.
int64_t InFlightBytes(const ModelConfig& config, int64_t rows, DType dtype, Activation id) {
  return Tier::InBlocks(ActivationShape(config, id, rows, dtype).num_bytes());
}

bool IsOffloaded(const ActivationPolicy& policy, Activation id) {
  return policy.Of(id) == Placement::kOffload;
}

int64_t AllInFlightBytes(const ModelConfig& config, int64_t rows, DType dtype,
                         const ActivationPolicy& policy) {
  int64_t bytes = 0;
  for (const ActivationRow& row : ActivationTable())
    if (IsOffloaded(policy, row.id)) bytes += 2 * InFlightBytes(config, rows, dtype, row.id);
  return std::max<int64_t>(bytes, 1);
}

// What the reports call it in the tier.
std::string_view TierName(Activation id) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ActivationRow& row : ActivationTable()) all.push_back("activations." + std::string(row.name));
    return all;
  }();
  return names[static_cast<size_t>(id)];
}

// In the order of activations, and of layers in each.
std::vector<TierSlot> TierSlots(const ModelConfig& config, int64_t rows, DType dtype,
                                const ActivationPolicy& policy) {
  std::vector<TierSlot> slots;
  for (const ActivationRow& row : ActivationTable()) {
    if (!IsOffloaded(policy, row.id)) continue;
    const int64_t bytes = ActivationShape(config, row.id, rows, dtype).num_bytes();
    slots.insert(slots.end(), static_cast<size_t>(config.num_hidden_layers),
                 TierSlot{TierName(row.id), bytes});
  }
  return slots;
}

}  // namespace

bool AnyOffloaded(const ActivationPolicy& policy) {
  return std::ranges::any_of(ActivationTable(),
                             [&](const ActivationRow& row) { return IsOffloaded(policy, row.id); });
}

OffloadedActivations::OffloadedActivations(const ModelConfig& config, int64_t rows, DType dtype,
                                           const ActivationPolicy& policy, Backend& backend, Tier& tier)
    : backend_(backend),
      tier_(tier),
      num_layers_(static_cast<int>(config.num_hidden_layers)),
      resident_(config, rows, dtype, policy, backend.dry()),
      arena_(backend.dry() ? Arena::Mode::kMeasure : Arena::Mode::kReal,
             AllInFlightBytes(config, rows, dtype, policy)),
      first_slot_(tier.Add(TierSlots(config, rows, dtype, policy))) {
  CHECK(tier.dry() == backend.dry() || !AnyOffloaded(policy));
  for (const ActivationRow& row : ActivationTable()) {
    if (!IsOffloaded(policy, row.id)) continue;
    const Tensor shape = ActivationShape(config, row.id, rows, dtype);
    for (InFlight& in_flight : in_flight_[Index(row.id)]) {
      const Tensor memory = arena_.Allocate("activations in flight", DType::kByte,
                                            {InFlightBytes(config, rows, dtype, row.id)});
      in_flight.tensor = Tensor(memory.raw(), shape.dtype(), shape.shape());
    }
  }
}

OffloadedActivations::InFlight& OffloadedActivations::Of(int layer, Activation id) {
  CHECK(0 <= layer && layer < num_layers_);
  return in_flight_[Index(id)][static_cast<size_t>(layer % 2)];
}

int OffloadedActivations::SlotOf(int layer, Activation id) const {
  int before = 0;
  for (size_t i = 0; i < Index(id); ++i) before += Offloaded(static_cast<Activation>(i)) ? 1 : 0;
  return first_slot_ + before * num_layers_ + layer;
}

Tensor OffloadedActivations::Slot(int layer, Activation id) {
  if (!Offloaded(id)) return resident_.Slot(layer, id);
  InFlight& in_flight = Of(layer, id);
  tier_.Wait(backend_, in_flight.moved);  // of the layer two before
  in_flight.layer = layer;
  in_flight.moved = {};
  return in_flight.tensor;
}

void OffloadedActivations::Keep(int layer, Activation id) {
  if (!Offloaded(id)) return resident_.Keep(layer, id);
  InFlight& in_flight = Of(layer, id);
  CHECK(in_flight.layer == layer);
  in_flight.moved = tier_.Write(SlotOf(layer, id), in_flight.tensor);
}

void OffloadedActivations::Prefetch(int layer) {
  for (const ActivationRow& row : ActivationTable()) {
    if (!Offloaded(row.id)) continue;
    InFlight& in_flight = Of(layer, row.id);
    if (in_flight.layer == layer) continue;
    in_flight.moved = tier_.Read(SlotOf(layer, row.id), in_flight.tensor, /*after=*/in_flight.moved);
    in_flight.layer = layer;
  }
}

// What is taken may be written over, so also a write to the tier must have ended.
Tensor OffloadedActivations::Take(int layer, Activation id) {
  if (!Offloaded(id)) return resident_.Take(layer, id);
  InFlight& in_flight = Of(layer, id);
  CHECK(in_flight.layer == layer);  // Prefetch was called
  tier_.Wait(backend_, in_flight.moved);
  return in_flight.tensor;
}

}  // namespace longspan
