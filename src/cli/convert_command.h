// `longspan convert`: its keys, and what it says when it is done.
#pragma once

#include <span>
#include <string>

#include "cli/keys.h"
#include "train/convert.h"

namespace longspan {

KeyList ConvertKeys(ConvertConfig& config);  // in the order in which they are shown
void ConvertCommand(std::span<const std::string> arguments);

}  // namespace longspan
