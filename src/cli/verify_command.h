// `longspan verify`: its keys, and what it prints.
#pragma once

#include <span>
#include <string>

#include "cli/keys.h"
#include "train/train_config.h"

namespace longspan {

struct VerifyConfig {
  TrainConfig run;
  std::string format = "table";
};
KeyList VerifyKeys(VerifyConfig& config);

// Throws Error(kInternal), after it has said by how much, if the mesh differs from one rank by more than
// rounding.
void VerifyCommand(std::span<const std::string> arguments);

}  // namespace longspan
