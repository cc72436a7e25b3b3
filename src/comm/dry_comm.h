// A communicator without peers: every operation has happened at once and moved nothing, but is counted as a
// real one would count it. For dry runs: any rank of any number of ranks.
#pragma once

#include <memory>

#include "comm/comm.h"

namespace longspan {

// Reports every operation to `recorder`, which outlives it, unless that is null.
std::unique_ptr<Comm> MakeDryComm(int rank, int size, WorkRecorder* recorder = nullptr);

}  // namespace longspan
