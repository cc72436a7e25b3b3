// What the files of a checkpoint hold of the weights and of the optimizer's state, in the order of the files.
#pragma once

#include <span>
#include <vector>

#include "model/params.h"
#include "train/state_store.h"

namespace longspan {

// One of the flat tensors of each unit, whose stored tensors go into a file under their names and this
// suffix.
struct SavedPart {
  int unit;
  Tensor UnitState::*tensor;
  const char* suffix;
};

// A unit's are together, so that its state is on the device once.
inline std::vector<SavedPart> ModelParts(const ParamTable& table) {
  std::vector<SavedPart> parts;
  for (int u = 0; u < table.num_units(); ++u) parts.push_back({u, &UnitState::master, ""});
  return parts;
}

inline std::vector<SavedPart> OptimizerParts(const ParamTable& table, bool has_moments) {
  std::vector<SavedPart> parts;
  for (int u = 0; u < table.num_units(); ++u) {
    parts.push_back({u, &UnitState::master, ".master"});
    if (!has_moments) continue;
    parts.push_back({u, &UnitState::exp_avg, ".exp_avg"});
    parts.push_back({u, &UnitState::exp_avg_sq, ".exp_avg_sq"});
  }
  return parts;
}

// Calls f(part, stored tensor) in the order of the file.
template <class F>
void ForEachTensor(const ParamTable& table, std::span<const SavedPart> parts, F f) {
  for (const SavedPart& part : parts)
    for (const StoredTensor& stored : table.units[static_cast<size_t>(part.unit)].stored) f(part, stored);
}

inline const char* OptimizerName(bool has_moments) { return has_moments ? "adamw" : "sgd"; }

}  // namespace longspan
