// What `longspan` says of itself, all of it made from the list of keys.
#pragma once

#include <string>

namespace longspan {

std::string MainHelp();
std::string TrainHelp();
std::string KeyReference();  // docs/reference/keys.md

}  // namespace longspan
