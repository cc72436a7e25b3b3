// `longspan plan`: its keys, and what it prints.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/keys.h"
#include "train/train_config.h"

namespace longspan {

struct PlanConfig {
  TrainConfig run;
  std::string hardware;
  int64_t document_length = 0;
  bool search = false, frontier = false;
  std::string format = "table", trace;
};
KeyList PlanKeys(PlanConfig& config);  // in the order in which they are shown

void PlanCommand(std::span<const std::string> arguments);

}  // namespace longspan
