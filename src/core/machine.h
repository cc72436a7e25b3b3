// The machine that this process runs on.
#pragma once

#include <cstdint>
#include <string>

namespace longspan {

std::string CpuModel();    // as the system names it; "CPU" where it doesn't
int NumCores();            // that it shows, at least 1
int64_t PhysicalMemory();  // in bytes
double LoadAverage();      // of the last minute; 0 where the system doesn't tell

}  // namespace longspan
