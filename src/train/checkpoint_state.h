// state.json of a checkpoint: what a run needs besides tensors to go on bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/mixture.h"
#include "train/step_guard.h"

namespace longspan {

struct CheckpointState {
  int64_t step = 0;  // updates done
  std::vector<SourcePosition> sources;
  int64_t optimizer_step = 0;                 // AdamW's count
  std::vector<StepSample> recent_steps = {};  // that later ones are judged by
};

// The text of state.json; `optimizer` is the run's opt_type.
std::string WriteCheckpointState(const CheckpointState& state, const std::string& optimizer);
// Reads it back. Throws Error naming what is missing or wrong, also if it is of another optimizer than the
// wanted one (empty: of any).
CheckpointState ReadCheckpointState(const std::string& path, const std::string& wanted_optimizer);

}  // namespace longspan
