// Checkpoints saved and verified by one rank that waits for them.
#pragma once

#include <string>

#include "comm/thread_comm.h"
#include "core/check.h"
#include "train/checkpoint_saver.h"
#include "train/checkpoint_verify.h"
#include "train/snapshot.h"

namespace longspan::testing {

// Throws Error(kResource) with what the save says.
inline void SaveCheckpoint(const std::string& folder, ShardedWeights& weights, const CheckpointState& state,
                           const SaveOptions& options, const IoHooks& hooks = {}) {
  RunThreadRanks(1, [&](Comm& world) {
    const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
    Snapshot snapshot(weights, *backend);
    CheckpointSaver saver(folder, weights, snapshot, world, options, hooks);
    saver.Start(state);
    const std::string error = saver.Wait()->error;
    Require(ExitCode::kResource, error.empty(), "{}", error);
  });
}

inline void VerifyCheckpoint(const std::string& directory, int num_ranks = 1) {
  RunThreadRanks(num_ranks, [&](Comm& world) { longspan::VerifyCheckpoint(directory, world); });
}

}  // namespace longspan::testing
