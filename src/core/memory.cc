#include "core/memory.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
#include <string>

namespace longspan {
namespace {

// The number in a file that holds one; none where there is no such file or it says "max".
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

int64_t MachineMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kibibytes = 0; file >> name >> kibibytes; std::getline(file, unit))
    if (name == "MemAvailable:") return kibibytes << 10;
  return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

std::atomic<bool> keeps_memory{false};

}  // namespace

void KeepMemory() { keeps_memory = true; }
bool KeepsMemory() { return keeps_memory; }

int64_t AvailableMemory() {
  int64_t available = MachineMemory();
  std::string group;  // "0::/path"
  std::ifstream file("/proc/self/cgroup");
  while (std::getline(file, group) && !group.starts_with("0::/")) {
  }
  if (!group.starts_with("0::/")) return available;
  // A limit counts for all groups below its own.
  for (std::string path = group.substr(3); !path.empty(); path.resize(path.rfind('/'))) {
    const std::optional<int64_t> most =
        NumberIn("/sys/fs/cgroup" + (path == "/" ? "" : path) + "/memory.max");
    if (most) available = std::min(available, *most);
  }
  return available;
}

}  // namespace longspan
