// `longspan generate`: its keys, and what it does with them.
#pragma once

#include <span>
#include <string>

#include "cli/keys.h"
#include "eval/generate_config.h"

namespace longspan {

KeyList GenerateKeys(GenerateConfig& config);
void GenerateCommand(std::span<const std::string> arguments);

}  // namespace longspan
