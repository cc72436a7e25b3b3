// A target's attention kernels as a table, included by one file per CPU target after that target's vectors
// (and tiles) and its forward and backward kernels.
//
// Everything in these sources has internal linkage and nothing comes from the standard library: of an inline
// function that several files define the linker keeps one copy, perhaps the AVX-512 one, for everyone.
#pragma once

#include "backend/cpu/attention_delta_impl.h"

namespace longspan::cpu {
namespace {

constexpr AttentionKernels kAttention = {
    kForwardBlock, kBackwardBlock, PanelFloats,           ForwardScratchFloats, PackPanel,       ForwardBegin,
    ForwardKeys,   ForwardEnd,     BackwardScratchFloats, BackwardBegin,        BackwardQueries, BackwardDq,
    BackwardEnd,   Delta};

}  // namespace
}  // namespace longspan::cpu
