// What `longspan` says of itself, made from its commands and their keys.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/keys.h"

namespace longspan {

// --help or -h is among the arguments of a command.
bool WantsHelp(std::span<const std::string> arguments);

std::string MainHelp();
// "Usage: longspan COMMAND …", what it does, and its keys with type, default, range and meaning.
std::string CommandHelp(std::string_view command, std::string_view about, const KeyList& keys);
// The last of that alone.
std::string KeyLines(const KeyList& keys);
std::string TrainHelp();
std::string KeyReference();  // docs/reference/keys.md

}  // namespace longspan
