// What a run leaves to be chosen, chosen: remat_policy=auto, the first rung of the memory ladder that fits;
// context_parallel_strategy=auto, the split of the ranks that is planned to be the fastest.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/candidate.h"
#include "plan/hardware.h"
#include "train/memory_ladder.h"

namespace longspan {

bool LeavesPolicy(const TrainConfig& config);
bool LeavesStrategy(const TrainConfig& config);

struct AutoChoice {
  TrainConfig config;                 // with nothing left to choose
  RungChoice rungs;                   // of remat_policy=auto; else empty
  std::vector<Candidate> candidates;  // of context_parallel_strategy=auto, in their order; else empty
  bool empty() const { return rungs.tried.empty() && candidates.empty(); }
};

// Of a model that is open, with its text or without. Keys of the mesh that its configuration gives beside
// context_parallel_strategy=auto are kept; where it doesn't say how many sequences a step has, it has one, or
// one for each group of ranks that these keys ask for. Each split is on the first rung that fits it, if
// remat_policy is auto as well. What doesn't fit at all is chosen as well as can be. `hardware` may be null
// if no strategy is left to choose. Throws Error(kUsage) for keys that leave nothing to choose from, or that
// auto chooses itself.
AutoChoice ChooseAuto(const Job& opened, const MemoryCheck& check, const Hardware* hardware);

// The choice and its reasons; empty if there was none.
std::string AutoText(const AutoChoice& choice);
nlohmann::ordered_json AutoJson(const AutoChoice& choice);

}  // namespace longspan
