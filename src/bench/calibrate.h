// This machine as a plan must know it (plan/hardware.h), measured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "plan/hardware.h"

namespace longspan::bench {

struct CalibrateSettings {
  int64_t max_target_length = 8192;  // tokens of attention's cases; at least 1024
  int64_t runs = 5;                  // timed, of each case
  std::string offload_directory;     // whose disk is measured
};

struct Calibration {
  Hardware hardware;
  std::string bfloat16_unit, float32_unit;  // whose peaks they are
  bool direct_disk = false;                 // written past the page cache
  bool disturbed = false;                   // by other work on the cores
};

// All cores work at each case: as many ranks of one thread, and then some cases on fewer ranks of more
// threads. `progress` is told how many cases of how many are done. Throws Error(kResource).
Calibration Calibrate(const CalibrateSettings& settings,
                      const std::function<void(int64_t done, int64_t total)>& progress);

// Of two calls of attention that differ in their allowed pairs alone, `many` and `few`: seconds a FLOP, and a
// byte of what both go over, never below 0. What noise makes of the latter is not less than nothing.
struct AttentionCosts {
  double seconds_per_flop = 0, seconds_per_byte = 0;
};
AttentionCosts FitAttention(double many_flops, double many_seconds, double few_flops, double few_seconds,
                            double bytes);

}  // namespace longspan::bench
