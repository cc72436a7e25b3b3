// What to say of a step whose loss or gradient is not finite.
#pragma once

#include <string>

#include "train/replica.h"

namespace longspan {

struct StepBatches;

// The first tensor that is not finite, of any rank: "key_proj of layer 3 on rank 5", "the gradient of
// model.layers.3.mlp.up_proj.weight on rank 5", …; takes the forward and backward pass of the step once more
// to find it. Before all others come the weights, then in the order of the model what its layers keep
// (remat_policy), the loss, a rank's own gradients and their sums. A tensor that spreads to other ranks
// before it is kept may be told of the first of them. Collective; all ranks are told the same.
std::string FirstNotFinite(Replica& replica, const StepBatches& batches);

}  // namespace longspan
