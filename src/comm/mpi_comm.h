// Ranks as processes, started by an MPI launcher, on one machine or many. A thread beside the rank's own
// makes all calls of MPI, so that messages move while the rank computes.
//
// Where longspan is built without MPI (no_mpi.cc), what is here says so.
#pragma once

#include <functional>

#include "comm/comm.h"

namespace longspan {

// Runs body(comm) as this process's rank of those that were launched together. Once in a process. Throws
// what body throws, after the others have been told, whose waits then throw PeerFailed; here, PeerFailed that
// names the rank that failed, or, with an empty message, says that a rank before this one failed with the
// same error and tells it. Throws Error(kResource) if MPI cannot begin.
void RunMpiRank(const std::function<void(Comm&)>& body);

// Ends MPI before the process ends with this code, once it has said what it had to say. Ranks that don't
// come to their ends in time, after one has failed, are ended. Nothing if RunMpiRank hasn't been called.
void LeaveMpi(int exit_code);

}  // namespace longspan
