// A machine to plan for: islands of four devices.
#pragma once

#include "plan/hardware.h"

namespace longspan::testing {

inline Hardware SmallMachine(double memory_gib) {
  Hardware hardware;
  hardware.hardware_name = "machine";
  hardware.device_memory_gib = memory_gib;
  hardware.host_memory_gib = 64;
  hardware.peak_tflops_bfloat16 = hardware.peak_tflops_float32 = 100;
  hardware.memory_gbps = 1000;
  hardware.link_gbps = 100;
  hardware.island_ranks = 4;
  hardware.network_gbps = 10;
  hardware.host_gbps = 20;
  hardware.disk_gbps = 1;
  return hardware;
}

}  // namespace longspan::testing
