// What memory this process may still take.
#pragma once

#include <cstdint>

namespace longspan {

// In bytes: what the machine has free or can free at once, or the limit of the process' group (cgroup v2, as
// in containers) where that is less.
int64_t AvailableMemory();

// From now on arenas and buffers leave their memory to the end of the process: a job has failed, and messages
// that nobody takes any more may still be read from it.
void KeepMemory();
bool KeepsMemory();

}  // namespace longspan
