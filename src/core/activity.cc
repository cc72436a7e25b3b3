#include "core/activity.h"

#include <ctime>
#include <fstream>
#include <string>

#include "core/clock.h"

namespace longspan {
namespace {

constexpr double kLeastCores = 0.01;
constexpr int64_t kLeastBytes = int64_t{64} << 10;

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
  return activity;
}

bool HasDoneSomething(const Activity& before, const Activity& now, double seconds) {
  return now.cpu_seconds - before.cpu_seconds > kLeastCores * seconds ||
         now.bytes - before.bytes > kLeastBytes;
}

}  // namespace longspan
