// Snapshot: this rank's share of the weights and of the optimizer's state as they were at one step, in memory
// of the host, so that they can be written while training goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "core/arena.h"
#include "train/weights.h"

namespace longspan {

class Snapshot {
 public:
  static constexpr std::string_view kMemoryName = "checkpoint_snapshot";

  // Takes its memory, once: f32, the masters and the moments of the share. Of a dry backend none is taken.
  Snapshot(ShardedWeights& weights, Backend& backend);

  // Copies what weights and state are now.
  void Take();
  // What one of the flat tensors of a unit was, of the elements of weights.Share(unit), f32.
  Tensor Of(int unit, Tensor UnitState::*tensor) const { return units_[static_cast<size_t>(unit)].*tensor; }
  int64_t num_bytes() const { return arena_->used_bytes(); }

 private:
  void Allocate(Arena& arena);

  ShardedWeights& weights_;
  Backend& backend_;
  std::vector<UnitState> units_;
  std::unique_ptr<Arena> arena_;
};

}  // namespace longspan
