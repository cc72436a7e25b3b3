#include "train/offloaded_activations.h"

#include <algorithm>
#include <vector>

#include "core/check.h"

namespace longspan {
namespace {

// Of an activation's tensor on the device: a multiple of what the tier's addresses are, as all sizes before
// it.
int64_t InFlightBytes(const ModelConfig& config, int64_t rows, DType dtype, Activation id) {
  constexpr int64_t kBlock = ScratchFile::kAlignment;
  const int64_t bytes = ActivationShape(config, id, rows, dtype).num_bytes();
  return (bytes + kBlock - 1) / kBlock * kBlock;
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

// In the order of activations, and of layers in each.
std::vector<TierSlot> TierSlots(const ModelConfig& config, int64_t rows, DType dtype,
                                const ActivationPolicy& policy) {
  std::vector<TierSlot> slots;
  for (const ActivationRow& row : ActivationTable()) {
    if (!IsOffloaded(policy, row.id)) continue;
    const int64_t bytes = ActivationShape(config, row.id, rows, dtype).num_bytes();
    slots.insert(slots.end(), static_cast<size_t>(config.num_hidden_layers), TierSlot{row.name, bytes});
  }
  return slots;
}

}  // namespace

bool AnyOffloaded(const ActivationPolicy& policy) {
  return std::ranges::any_of(ActivationTable(),
                             [&](const ActivationRow& row) { return IsOffloaded(policy, row.id); });
}

OffloadedActivations::OffloadedActivations(const ModelConfig& config, int64_t rows, DType dtype,
                                           const ActivationPolicy& policy, const std::string& directory,
                                           Backend& backend, Background* background,
                                           const OffloadHooks& hooks)
    : backend_(backend),
      num_layers_(static_cast<int>(config.num_hidden_layers)),
      resident_(config, rows, dtype, policy, backend.dry()),
      arena_(backend.dry() ? Arena::Mode::kMeasure : Arena::Mode::kReal,
             AllInFlightBytes(config, rows, dtype, policy)),
      tier_(TierSlots(config, rows, dtype, policy), directory, background, hooks, backend.recorder(),
            backend.shares_host_memory()) {
  CHECK((background == nullptr) == (backend.dry() || !AnyOffloaded(policy)));
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
  return before * num_layers_ + layer;
}

Tensor OffloadedActivations::Slot(int layer, Activation id) {
  if (!Offloaded(id)) return resident_.Slot(layer, id);
  InFlight& in_flight = Of(layer, id);
  Wait(in_flight.moved);  // of the layer two before
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
  Wait(in_flight.moved);
  return in_flight.tensor;
}

void OffloadedActivations::Wait(const Event& event) {
  const double before = backend_.wait_seconds();
  backend_.Wait(event);
  wait_seconds_ += backend_.wait_seconds() - before;
}

}  // namespace longspan
