#include "eval/scorer.h"

#include <cmath>

#include "core/target.h"
#include "train/checkpoint.h"

namespace longspan {

Scorer::Scorer(const Job& job, Comm& world)
    : replica_(job, MakeCpuBackend(static_cast<int>(job.config.threads_per_rank)), world),
      losses_(DType::kFloat32, {replica_.layout().rows_per_rank()}),
      argmax_(DType::kInt32, {replica_.layout().rows_per_rank()}) {
  LoadModelWeights(job.model_directory, replica_.weights());
}

TokenScore Scorer::At(const Shard& shard, size_t i, int64_t row) const {
  const float loss = losses_.tensor().data<float>()[i];
  Require(std::isfinite(loss),
          "the loss of row {} (token {}, target {}) is {}; the model's weights or its dtype do "
          "not suit this text",
          row, shard.tokens[i], shard.targets[i], loss);
  return {.row = row,
          .context = shard.positions[i] + 1,
          .loss = static_cast<double>(loss),
          .greedy = argmax_.tensor().data<int32_t>()[i] == shard.targets[i]};
}

}  // namespace longspan
