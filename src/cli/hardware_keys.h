// The one list of a hardware file's keys, and the machines that are known by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/keys.h"
#include "plan/hardware.h"

namespace longspan {

KeyList HardwareKeys(Hardware& hardware);  // in the order in which they are shown

// recipes/hardware/*.yml, as compiled in.
std::vector<std::string_view> BuiltinHardwareNames();

// Of a machine known by name, or the path of a file. Throws Error(kUsage) naming what is wrong, and the names
// that there are.
Hardware LoadHardware(const std::string& name);

}  // namespace longspan
