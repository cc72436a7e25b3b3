// `longspan eval`: its keys, and what it does with them.
#pragma once

#include <span>
#include <string>

#include "cli/keys.h"
#include "eval/eval_config.h"

namespace longspan {

KeyList EvalKeys(EvalConfig& config);
void EvalCommand(std::span<const std::string> arguments);

}  // namespace longspan
