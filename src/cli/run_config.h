// The one list of a run's keys.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cli/keys.h"
#include "train/train_config.h"

namespace longspan {

// In the order in which they are shown and written.
KeyList TrainKeys(TrainConfig& config);
// model_path where a model is run rather than trained: it must have weights.
void AddTrainedModelKey(KeyList& keys, TrainConfig& config);
// The keys of training named here, where nothing is planned: the strategy is not auto.
void AddRunKeys(KeyList& keys, const KeyList& train, std::span<const std::string_view> names);

// The configuration of `longspan train [RECIPE.yml] [key=value …]`, of so many ranks where it doesn't say
// their number; throws as LoadKeys does.
TrainConfig LoadTrainConfig(std::span<const std::string> arguments, int64_t ranks = 1);

// A recipe that says every key in list order; LoadTrainConfig reads the same configuration back from it.
std::string WriteRecipe(const TrainConfig& config);

}  // namespace longspan
