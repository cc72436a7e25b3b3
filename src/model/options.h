// ModelOptions: how a model is run, as opposed to what it is (config.h).
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "mask/mask.h"

namespace longspan {

struct ModelOptions {
  DType dtype = DType::kFloat32;  // of activations (residual stream too) and compute weights: f32 or bf16
  MaskSpec mask;
  int64_t max_target_length = 0;  // T, or the rows of a pass; rotary tables reach so far
  int64_t mlp_chunk_rows = 1024;  // what works row by row in a block goes through this many rows at a time
  int64_t loss_chunk_rows = 256;  // head and loss likewise: never (t, V) at once
};

}  // namespace longspan
