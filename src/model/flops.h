// How many floating-point operations a training step is worth, by three counts.
#pragma once

#include <cstdint>

#include "mask/mask.h"
#include "model/config.h"

namespace longspan {

// Forward and backward, over all ranks. A product of (m, k) and (k, n) is 2·m·n·k.
struct StepFlops {
  // What MFU counts: 6 · matrix parameters · tokens + Σ over layers 12 · pairs · H · D, with tokens that are
  // no padding and the (row, key) pairs that the mask allows, counted exactly.
  double useful = 0;
  // What the attention kernels do: two products of pairs · H · D forward (twice, where the context is not
  // kept), five backward. Backend::matmul_flops counts the rest of what is done, recomputation included.
  double attention_hardware = 0;
  // MaxText's own count, for comparison: every row is a token, and every sequence has T²/2 pairs.
  double maxtext = 0;

  StepFlops& operator+=(const StepFlops& other);
};

// Of one sequence: its rows, padding included, and its documents. `keeps_context`: for the backward pass.
StepFlops CountFlops(const ModelConfig& config, const MaskSpec& mask, int64_t num_rows,
                     const Documents& documents, bool keeps_context = true);

}  // namespace longspan
