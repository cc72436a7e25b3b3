// The mean key that makes dq of bf16 attention exact (AttentionCall::key_mean).
#pragma once

#include "backend/backend.h"
#include "comm/comm.h"
#include "parallel/strategy.h"

namespace longspan {

// The mean over all ranks' keys that belong to a document, (K, D) f32, in scratch of the arena's open Scope;
// k (t, K, D) are the rows of this rank. Equal bit for bit on every rank; between degrees and layouts within
// rounding. Null, and nothing is exchanged, where attention takes none: keys in f32, a soft cap, sinks.
Tensor KeyMean(Backend& backend, Comm& comm, const SequenceShards& shards, Tensor k);

}  // namespace longspan
