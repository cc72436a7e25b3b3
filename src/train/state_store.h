// StateStore: what this rank keeps of each unit besides its gradient, on the device or in a tier beside it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "core/arena.h"
#include "train/tier.h"

namespace longspan {

// The flat tensors of a unit's shard, all of as many elements; null where there is none.
struct UnitState {
  Tensor master;               // f32
  Tensor compute;              // bf16; null where the master is what the model reads
  Tensor exp_avg, exp_avg_sq;  // f32, AdamW's moments
};

// Which of it waits in `tier`, which outlives the store.
struct StateOffload {
  Tier* tier = nullptr;     // null: nothing does
  bool optimizer = false;   // the moments
  bool parameters = false;  // masters and compute weights
};

// What is offloaded is only on the device while it is read or updated, unit by unit: in one of two places,
// which the units take in turn. While one is at work in its place, the unit before goes back to the tier from
// the other, and then the next one comes there.
class StateStore {
 public:
  // Of units of so many elements each. Everything starts as zero. `backend`, through which it waits for the
  // tier, may be null if nothing is offloaded.
  StateStore(std::vector<int64_t> num_elements, DType compute_dtype, bool has_moments,
             const StateOffload& offload, Backend* backend);
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  // Takes its memory: of an arena in which, if anything is offloaded, all before is of whole blocks of the
  // tier, so that what comes from there is aligned. What it took before is forgotten.
  void Allocate(Arena& arena);

  bool has_moments() const { return has_moments_; }
  bool offloads() const;  // anything
  bool offloads_parameters() const { return offloads_parameters_; }
  // What the model reads: the compute weights, or the masters where there are none. Offloaded, they are
  // fetched to the caller's own memory, aligned as the tier wants: they are there once the event has
  // happened.
  Tensor ForModel(int unit) const;
  Event FetchForModel(int unit, Tensor to);
  // Waits for what was fetched.
  void Wait(const Event& event);

  // Will be asked for soon.
  void Prefetch(int unit);
  // On the device; what is offloaded, until one that takes its place is asked for or fetched: the unit after
  // the next.
  const UnitState& Get(int unit);
  // What Get has given was written to, the moments too or not.
  void Changed(int unit, bool with_moments);
  // To the tier so far.
  int64_t bytes_written() const { return bytes_written_; }

 private:
  // One of the tensors, of all units.
  struct Part {
    Tensor UnitState::*tensor;
    DType dtype;
    std::string_view name, name_in_flight;  // in the memory report
    bool is_moment, offloaded;
    int first_slot = 0;  // in the tier, of the units one after the other
  };
  // A place on the device.
  struct InFlight {
    int unit = -1;  // whose tensors it holds or will hold, once `moved` has happened
    Event moved;    // from the tier, or back
  };
  // Calls f(part, slot, tensor) for each of a unit's tensors that is moved.
  template <class F>
  void ForEachMoved(int unit, F f) const;
  InFlight& PlaceOf(int unit) { return in_flight_[static_cast<size_t>(unit % 2)]; }
  int num_units() const { return static_cast<int>(num_elements_.size()); }
  const UnitState& At(int unit) const { return units_[static_cast<size_t>(unit)]; }

  const std::vector<int64_t> num_elements_;
  const bool has_moments_, offloads_parameters_;
  Tier* const tier_;
  Backend* const backend_;
  std::vector<Part> parts_;
  std::vector<UnitState> units_;
  std::array<InFlight, 2> in_flight_;
  int64_t bytes_written_ = 0;
};

}  // namespace longspan
