// The three attention operations of the CPU backend. Shapes and meaning are those of Backend
// (backend/backend.h); `workspace` is what the matching function below asked for, in bytes (a kByte tensor,
// 64-byte aligned).
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/cpu_features.h"

namespace longspan::cpu {

// Bytes of workspace: the same for a real and a dry run, so a function of shapes, dtypes, target and threads
// alone.
int64_t AttentionForwardWorkspace(const AttentionCall& call, const Tensor& q, const Tensor& k,
                                  const Tensor& v, CpuTarget target, int num_threads);
int64_t AttentionBackwardWorkspace(const AttentionCall& call, const Tensor& q, const Tensor& k,
                                   const Tensor& v, CpuTarget target, int num_threads);

void AttentionForward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, bool first, bool last,
                      const AttentionState& state, Tensor out, Tensor lse, Tensor workspace, CpuTarget target,
                      int num_threads);
void AttentionDelta(Tensor out, Tensor dout, Tensor delta, CpuTarget target, int num_threads);
void AttentionBackward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, Tensor dout, Tensor lse,
                       Tensor delta, Tensor dq, Tensor dk, Tensor dv, Tensor workspace, CpuTarget target,
                       int num_threads);

}  // namespace longspan::cpu
