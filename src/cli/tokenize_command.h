// `longspan tokenize`: its keys, and what it says when it is done.
#pragma once

#include <span>
#include <string>

#include "cli/keys.h"
#include "data/tokenize.h"

namespace longspan {

KeyList TokenizeKeys(TokenizeConfig& config);  // in the order in which they are shown
std::string TokenizeSummary(const TokenizeConfig& config, const TokenizeReport& report);
void TokenizeCommand(std::span<const std::string> arguments);

}  // namespace longspan
