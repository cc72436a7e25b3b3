// The attention kernels' source, included by one file per CPU target after that target's vectors.
//
// Everything here has internal linkage and nothing comes from the standard library: of an inline function
// that several files define the linker keeps one copy, perhaps the AVX-512 one, for everyone.
#pragma once

#include "backend/cpu/attention_backward_impl.h"
#include "backend/cpu/attention_delta_impl.h"
#include "backend/cpu/attention_forward_impl.h"

namespace longspan::cpu {
namespace {

constexpr AttentionKernels kAttention = {
    kForwardBlock, kBackwardBlock, PanelFloats,           ForwardScratchFloats, PackPanel,       ForwardBegin,
    ForwardKeys,   ForwardEnd,     BackwardScratchFloats, BackwardBegin,        BackwardQueries, BackwardDq,
    BackwardEnd,   Delta};

}  // namespace
}  // namespace longspan::cpu
