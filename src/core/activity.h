// Whether this process does anything, as its system counts it.
#pragma once

#include <cstdint>

namespace longspan {

struct Activity {
  double cpu_seconds = 0;  // of all its threads but the one that asks
  int64_t bytes = 0;       // read and written, by calls and, of mapped files, by the disks
  // While a thread of it waits for a disk, as for what is written to reach it: what all disks and file
  // systems of the machine have moved; else 0.
  int64_t disk_bytes = 0;
};
// What is not known, as where /proc is not there, counts as 0.
Activity ActivityOfProcess();

// Whether what was done between the two, so many seconds apart, is more than waiting takes: a hundredth of a
// core, or 64 KiB.
bool HasDoneSomething(const Activity& before, const Activity& now, double seconds);

}  // namespace longspan
