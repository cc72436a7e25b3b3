#include <fmt/ranges.h>

#include <cstdlib>

#include "backend/backend.h"
#include "cli/builtin_hardware.h"
#include "cli/hardware_keys.h"
#include "core/check.h"
#include "core/file.h"
#include "core/format.h"
#include "core/machine.h"
#include "core/names.h"
#include "core/report_error.h"

namespace longspan {
namespace {

// A name that isn't a file's: what `longspan calibrate` has written.
constexpr std::string_view kThis = "this";

std::string TextOf(const std::string& name, std::string& where) {
  const std::vector<std::string_view> names = HardwareNames();
  if (name == kThis) {
    where = ThisHardwarePath();
    Require(ExitCode::kUsage, IsRegularFile(where),
            "hardware this: {} isn't there; run `longspan calibrate`, which measures this machine and writes "
            "it, or name "
            "another machine, hardware=NAME",
            where);
    return ReadTextFile(where);
  }
  for (const BuiltinHardware& builtin : kBuiltinHardware)
    if (builtin.name == name) return std::string(builtin.text);
  Require(ExitCode::kUsage, IsRegularFile(name),
          "hardware '{}' is neither a file nor one that is known by name{}", name, Suggestion(name, names));
  return ReadTextFile(name);
}

// What is planned is this machine's kernels at the rates of the file's.
void WarnOfAnotherCpu(const Hardware& hardware, const std::string& where) {
  if (!hardware.is_cpu()) return;
  const std::string target = CpuTargetName();
  if (hardware.cpu_model == CpuModel() && hardware.cores == NumCores() && hardware.cpu_target == target)
    return;
  Remark(
      fmt::format("warning: {} was measured on {}, {}, target {}; this is {}, {}, target {}: times are that "
                  "one's, memory is this one's; `longspan calibrate` measures anew",
                  where, hardware.cpu_model, Plural(hardware.cores, "core"), hardware.cpu_target, CpuModel(),
                  Plural(NumCores(), "core"), target));
}

}  // namespace

std::vector<std::string_view> HardwareNames() {
  std::vector<std::string_view> names;
  for (const BuiltinHardware& builtin : kBuiltinHardware) names.push_back(builtin.name);
  names.push_back(kThis);
  return names;
}

std::string ThisHardwarePath() {
  constexpr const char* kPlace = "/longspan/hardware/this.yml";
  const char* const config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && config[0] == '/') return std::string(config) + kPlace;
  const char* const home = std::getenv("HOME");
  Require(
      ExitCode::kUsage, home != nullptr && home[0] == '/',
      "neither XDG_CONFIG_HOME nor HOME says where your files are; set one, or name a hardware file by its "
      "path");
  return std::string(home) + "/.config" + kPlace;
}

Hardware LoadHardware(const std::string& name) {
  Require(ExitCode::kUsage, !name.empty(),
          "hardware is not given; give hardware=NAME, one of {}, or the path of a file",
          fmt::join(HardwareNames(), ", "));
  std::string where = name;
  const std::string text = TextOf(name, where);
  const Hardware hardware = ParseHardware(text, where);
  WarnOfAnotherCpu(hardware, where);
  return hardware;
}

}  // namespace longspan
