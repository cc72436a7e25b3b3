// Keys that place activations: remat_policy, and the nine of its `custom`.
#pragma once

#include <string>

#include "model/activations.h"
#include "train/train_config.h"

namespace longspan {

// What becomes of each activation. Sets those keys of custom that are not given. Throws Error(kUsage).
ActivationPolicy ResolvePlacement(TrainConfig& config);

// key=value words that make a run of `from`, which is resolved, place its activations as one of `to` does;
// right whichever of them its recipe gives. Empty: it does so already.
std::string PlacementChanges(const TrainConfig& from, TrainConfig to);

}  // namespace longspan
