// The loss of a text, by how much of it a row sees.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/loss_by_context.h"
#include "train/job.h"

namespace longspan {

struct LossReport {
  int64_t sequences = 0, tokens = 0;  // tokens: rows that are no padding
  LossBucket whole;
  std::vector<LossBucket> buckets;
  double seconds = 0;  // of the passes over them
};

// Of the job's text from its beginning, in file order: its first eval_steps sequences, or all of them. Over
// the job's ranks. Throws Error if there is no target.
LossReport MeasureLoss(const Job& job);

}  // namespace longspan
