#include "core/activity.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "core/clock.h"

namespace longspan {
namespace {

constexpr double kLeastCores = 0.01;
constexpr int64_t kLeastBytes = int64_t{64} << 10;

// Whether any is in the state D of proc(5): of /proc/self/task/N/stat "N (name) D …".
bool AnyThreadWaitsForDisk() {
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream stat(thread.path() / "stat");
    std::string line;
    std::getline(stat, line);
    const size_t name_end = line.rfind(')');
    if (name_end != line.npos && line.substr(name_end + 1, 2) == " D") return true;
  }
  return false;
}

int64_t BytesMovedByDisks() {
  constexpr int64_t kPage = 4096;
  int64_t bytes = 0;
  std::ifstream counts("/proc/vmstat");  // "pgpgin 123", a line each; KiB, or pages
  std::string name;
  for (int64_t count = 0; counts >> name >> count;) {
    if (name == "pgpgin" || name == "pgpgout") bytes += 1024 * count;
    if (name == "nr_written") bytes += kPage * count;
  }
  return bytes;
}

}  // namespace

Activity ActivityOfProcess() {
  Activity activity;
  timespec all{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
  activity.cpu_seconds =
      static_cast<double>(all.tv_sec) + 1e-9 * static_cast<double>(all.tv_nsec) - ThreadSeconds();
  std::ifstream io("/proc/self/io");  // "rchar: 123", a line each
  std::string name;
  for (int64_t count = 0; io >> name >> count;)
    if (name == "rchar:" || name == "wchar:" || name == "read_bytes:" || name == "write_bytes:")
      activity.bytes += count;
  if (AnyThreadWaitsForDisk()) activity.disk_bytes = BytesMovedByDisks();
  return activity;
}

bool HasDoneSomething(const Activity& before, const Activity& now, double seconds) {
  const bool waited = before.disk_bytes > 0 && now.disk_bytes > 0;
  return now.cpu_seconds - before.cpu_seconds > kLeastCores * seconds ||
         now.bytes - before.bytes > kLeastBytes ||
         (waited && now.disk_bytes - before.disk_bytes > kLeastBytes);
}

}  // namespace longspan
