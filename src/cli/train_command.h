// `longspan train`.
#pragma once

#include <span>
#include <string>

namespace longspan {

void TrainCommand(std::span<const std::string> arguments);

}  // namespace longspan
