#include "train/state_store.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace longspan {

StateStore::StateStore(std::vector<int64_t> num_elements, DType compute_dtype, bool has_moments,
                       const StateOffload& offload, Backend* backend)
    : num_elements_(std::move(num_elements)),
      has_moments_(has_moments),
      offloads_parameters_(offload.parameters),
      tier_(offload.tier),
      backend_(backend) {
  constexpr DType kFloat32 = DType::kFloat32;
  const auto add = [&](Tensor UnitState::*tensor, DType dtype, const char* name) {
    parts_.push_back({tensor, dtype, name, "weights in flight", /*is_moment=*/false, offload.parameters});
  };
  add(&UnitState::master, kFloat32, "weights");
  if (compute_dtype != kFloat32) add(&UnitState::compute, compute_dtype, "weights.compute");
  if (has_moments)
    for (Tensor UnitState::*moment : {&UnitState::exp_avg, &UnitState::exp_avg_sq})
      parts_.push_back(
          {moment, kFloat32, "optimizer", "optimizer in flight", /*is_moment=*/true, offload.optimizer});

  for (Part& part : parts_) {
    if (!part.offloaded) continue;
    CHECK(tier_ != nullptr && backend_ != nullptr && tier_->dry() == backend_->dry());
    std::vector<TierSlot> slots;
    for (const int64_t n : num_elements_)
      slots.push_back({.name = part.name, .bytes = n * SizeOf(part.dtype), .starts_as_zero = true});
    part.first_slot = tier_->Add(slots);
  }
}

StateStore::~StateStore() {
  if (tier_ != nullptr) tier_->Finish();
}

void StateStore::Allocate(Arena& arena) {
  units_.assign(num_elements_.size(), {});
  for (const Part& part : parts_) {
    if (!part.offloaded) continue;
    for (int place = 0; place < 2; ++place) {
      int64_t largest = 0;
      for (int u = place; u < num_units(); u += 2)
        largest = std::max(largest, num_elements_[static_cast<size_t>(u)]);
      const Tensor memory =
          arena.Allocate(part.name_in_flight, DType::kByte, {Tier::InBlocks(largest * SizeOf(part.dtype))});
      for (int u = place; u < num_units(); u += 2)
        units_[static_cast<size_t>(u)].*part.tensor =
            Tensor(memory.raw(), part.dtype, {num_elements_[static_cast<size_t>(u)]});
    }
  }
  for (const Part& part : parts_) {
    if (part.offloaded) continue;
    for (int u = 0; u < num_units(); ++u)
      units_[static_cast<size_t>(u)].*part.tensor =
          arena.Allocate(part.name, part.dtype, {num_elements_[static_cast<size_t>(u)]});
  }
}

bool StateStore::offloads() const {
  return std::ranges::any_of(parts_, [](const Part& part) { return part.offloaded; });
}

Tensor StateStore::ForModel(int unit) const {
  CHECK(!offloads_parameters_);
  const UnitState& state = At(unit);
  return state.compute.IsNull() ? state.master : state.compute;
}

Event StateStore::FetchForModel(int unit, Tensor to) {
  CHECK(offloads_parameters_ && to.num_elements() == num_elements_[static_cast<size_t>(unit)]);
  if (to.num_elements() == 0) return {};
  Tensor UnitState::*const wanted = At(unit).compute.IsNull() ? &UnitState::master : &UnitState::compute;
  const auto part =
      std::ranges::find_if(parts_, [&](const Part& candidate) { return candidate.tensor == wanted; });
  CHECK(part->dtype == to.dtype());
  return tier_->Read(part->first_slot + unit, to);
}

void StateStore::Wait(const Event& event) {
  if (tier_ != nullptr) tier_->Wait(*backend_, event);
}

template <class F>
void StateStore::ForEachMoved(int unit, F f) const {
  for (const Part& part : parts_)
    if (part.offloaded && num_elements_[static_cast<size_t>(unit)] > 0)
      f(part, part.first_slot + unit, At(unit).*part.tensor);
}

void StateStore::Prefetch(int unit) {
  InFlight& place = PlaceOf(unit);
  if (place.unit == unit) return;
  place.unit = unit;
  const Event gone = place.moved;  // the unit that was there
  ForEachMoved(unit, [&](const Part&, int slot, Tensor tensor) {
    place.moved = Both(place.moved, tier_->Read(slot, tensor, /*after=*/gone));
  });
}

// What is given may be written to, so also its way back to the tier must have ended.
const UnitState& StateStore::Get(int unit) {
  Prefetch(unit);
  Wait(PlaceOf(unit).moved);
  return At(unit);
}

void StateStore::Changed(int unit, bool with_moments) {
  InFlight& place = PlaceOf(unit);
  CHECK(place.unit == unit && place.moved.Done());  // Get was called
  ForEachMoved(unit, [&](const Part& part, int slot, Tensor tensor) {
    if (part.is_moment && !with_moments) return;
    const int64_t before = tier_->bytes_written();
    place.moved = Both(place.moved, tier_->Write(slot, tensor));
    bytes_written_ += tier_->bytes_written() - before;
  });
}

}  // namespace longspan
