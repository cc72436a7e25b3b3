// Ranks as threads of this process. Messages are copied by a background thread of the receiving rank, so that
// they overlap with compute.
#pragma once

#include <functional>

#include "comm/comm.h"

namespace longspan {

// Runs body(comm) on `num_ranks` threads and returns when all have ended. The first rank that throws aborts
// the communicator, so that its peers' waits throw PeerFailed; its own error is rethrown here, once.
void RunThreadRanks(int num_ranks, const std::function<void(Comm&)>& body);

}  // namespace longspan
