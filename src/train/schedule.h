// Learning-rate schedules.
#pragma once

#include <cstdint>

#include "train/train_config.h"

namespace longspan {

// The learning rate of the update that makes `step` updates into step + 1 (step counts from 0). With S =
// learning_rate_schedule_steps and w = ⌊warmup_steps_fraction · S⌋ the rate climbs in w equal steps to
// learning_rate, then
//   cosine:   falls along half a cosine to learning_rate · learning_rate_final_fraction at step S;
//   wsd:      stays, and falls linearly to that value over the last ⌊wsd_decay_steps_fraction · S⌋ steps;
//   constant: stays.
// Past S the last value holds.
double LearningRate(const TrainConfig& config, int64_t step);

}  // namespace longspan
