// GenerateConfig: what `longspan generate` does. Each field is a key under the same name;
// cli/generate_command.cc lists them.
#pragma once

#include <cstdint>
#include <string>

#include "train/train_config.h"

namespace longspan {

struct GenerateConfig {
  TrainConfig run;  // what it has in common with training, by the same keys: model, threads, numbers

  std::string prompt, prompt_path;     // one of them
  bool prompt_special_tokens = false;  // special tokens that the prompt spells are themselves, not text
  int64_t max_new_tokens = 128;

  double temperature = 0;  // 0: the likeliest token
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
  int64_t seed = 0;
};

}  // namespace longspan
