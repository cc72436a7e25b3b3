// The one list of a hardware file's keys, and the machines that are known by name (load_hardware.cc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/keys.h"
#include "plan/hardware.h"

namespace longspan {

KeyList HardwareKeys(Hardware& hardware);  // in the order in which they are shown

// A hardware file's text. Throws Error(kUsage), beginning with `where`, for a key that is wrong or missing.
Hardware ParseHardware(const std::string& text, const std::string& where);

// recipes/hardware/*.yml, as compiled in, and "this".
std::vector<std::string_view> HardwareNames();
// Where `longspan calibrate` writes the machine that it runs on: longspan/hardware/this.yml below
// XDG_CONFIG_HOME, or else ~/.config. Throws Error(kUsage) where neither is known.
std::string ThisHardwarePath();

// Of a machine known by name, or the path of a file. Throws Error(kUsage) naming what is wrong, and the names
// that there are. Warns, on standard error, where a CPU's was not measured on the one that this runs on.
Hardware LoadHardware(const std::string& name);

}  // namespace longspan
