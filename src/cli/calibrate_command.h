// `longspan calibrate`: its keys, and the file that it writes.
#pragma once

#include <span>
#include <string>

#include "bench/calibrate.h"
#include "cli/keys.h"

namespace longspan {

struct CalibrateConfig {
  std::string output;
  bench::CalibrateSettings settings;
};
KeyList CalibrateKeys(CalibrateConfig& config);

void CalibrateCommand(std::span<const std::string> arguments);

// The hardware file: a comment that says what was measured when, and the keys. LoadHardware reads it.
std::string HardwareFile(const bench::Calibration& calibration, const std::string& date);

}  // namespace longspan
