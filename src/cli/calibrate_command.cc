#include "cli/calibrate_command.h"

#include <fmt/chrono.h>

#include <ctime>
#include <filesystem>
#include <memory>

#include "cli/hardware_keys.h"
#include "cli/help.h"
#include "core/check.h"
#include "core/file.h"
#include "core/format.h"
#include "core/machine.h"
#include "core/output.h"
#include "core/progress_line.h"
#include "core/report_error.h"
#include "train/tier.h"

namespace longspan {
namespace {

constexpr double kMostTokens = 1 << 24, kMostRuns = 1000;

// Of the largest size, which is the last.
std::string Last(const KernelRates::Map& map) {
  double size = -1;
  std::string value;
  for (const auto& [size_text, value_text] : map)
    if (std::stod(size_text) > size) {
      size = std::stod(size_text);
      value = value_text;
    }
  return value;
}

std::string ValueAt(const KernelRates::Map& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? "not measured" : found->second;
}

std::string KernelLines(std::string_view dtype, const KernelRates& rates) {
  return fmt::format(
      "{:<9} {}: products {} of the peak, gradients of inputs {} and weights {}; attention of width 128 {} "
      "forward, {} backward\n",
      "kernels", dtype, Last(rates.matmul_efficiency), Last(rates.input_gradient_efficiency),
      Last(rates.weight_gradient_efficiency), ValueAt(rates.attention_forward_efficiency, "128"),
      ValueAt(rates.attention_backward_efficiency, "128"));
}

std::string Summary(const bench::Calibration& calibration) {
  const Hardware& h = calibration.hardware;
  std::string text = fmt::format(
      "{:<9} {}, {}, {:.1f} GiB; target {}\n{:<9} of a core, GFLOP/s: bfloat16 {:.0f} ({}), float32 {:.0f} "
      "({})\n",
      "machine", h.cpu_model, Plural(h.cores, "core"), h.device_memory_gib, h.cpu_target, "peak",
      1e3 * h.peak_tflops_bfloat16, calibration.bfloat16_unit, 1e3 * h.peak_tflops_float32,
      calibration.float32_unit);
  text += KernelLines("bfloat16", h.kernels) + KernelLines("float32", h.kernels_float32);
  return text + fmt::format(
                    "{:<9} {:g} GB/s a core, read and written\n{:<9} {:g} GB/s a rank, {:g} µs a message\n"
                    "{:<9} {:g} GB/s written, {:g} read{}\n",
                    "memory", h.memory_gbps, "link", h.link_gbps, h.message_us, "disk", h.disk_gbps,
                    h.disk_read_gbps, calibration.direct_disk ? "" : ", through the page cache");
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(now));
}

// Rates that were measured beside other work are too low, and runs would be planned slower than they will be.
void WarnOfOtherWork(const std::string& what) {
  Remark(fmt::format("warning: {}; calibrate again when nothing else runs", what));
}

void WarnOfLoad() {
  constexpr double kIdle = 0.25;  // of a core's load
  if (const double load = LoadAverage(); load > kIdle * NumCores())
    WarnOfOtherWork(
        fmt::format("the load average of the last minute is {:.1f} on {}", load, Plural(NumCores(), "core")));
}

// Says what is wrong with the place before anything is measured.
void PreparePlace(const std::string& output) {
  Require(ExitCode::kUsage, !IsDirectory(output), "output '{}' is a folder; name a file", output);
  const std::filesystem::path folder = std::filesystem::path(output).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
}

}  // namespace

KeyList CalibrateKeys(CalibrateConfig& config) {
  KeyList keys;
  keys.Group("Calibration");
  keys.Add("output", &config.output,
           "The hardware file to write, which replaces one that is there; empty: the one that hardware=this "
           "reads, longspan/hardware/this.yml below XDG_CONFIG_HOME, or else ~/.config.");
  keys.Add("offload_directory", &config.settings.offload_directory,
           "The folder whose disk is measured, with a file of 128 MiB that is gone afterwards; empty: the "
           "output's.");
  keys.Add("max_target_length", &config.settings.max_target_length, "Tokens of the cases of attention.",
           Between(1024, kMostTokens));
  keys.Add("runs", &config.settings.runs, "Timed runs of a case, of which the median counts.",
           Between(1, kMostRuns));
  return keys;
}

std::string HardwareFile(const bench::Calibration& calibration, const std::string& date) {
  Hardware hardware;
  const KeyList keys = HardwareKeys(hardware);
  hardware = calibration.hardware;
  return fmt::format(
             "# Measured by longspan calibrate on {}: {}, {}, target {}.\n"
             "# Peaks of a core are those of {} (bfloat16) and {} (float32), in registers alone.\n"
             "# Measured, with all cores at work: products, operations, memory, threads, links, disk ({}).\n"
             "# Fitted to two measurements each: attention's efficiency and GB/s, to one document and to "
             "short "
             "ones.\n"
             "# Taken from others: host_gbps, half of memory_gbps.\n{}",
             date, hardware.cpu_model, Plural(hardware.cores, "core"), hardware.cpu_target,
             calibration.bfloat16_unit, calibration.float32_unit,
             calibration.direct_disk ? "past the page cache" : "through the page cache",
             calibration.disturbed ? "# Beside other work, so that some rates are too low.\n" : "") +
         WriteChanges(keys);
}

void CalibrateCommand(std::span<const std::string> arguments) {
  CalibrateConfig config;
  const KeyList keys = CalibrateKeys(config);
  if (WantsHelp(arguments))
    return Answer(
        CommandHelp("calibrate",
                    "Measures this machine for one or two minutes, during which nothing else should "
                    "run, and writes what `longspan plan hardware=this` reads: kernels by shape and "
                    "dtype, memory, messages between ranks, a disk.",
                    keys));
  LoadKeys("calibrate", keys, arguments);
  const std::string output = config.output.empty() ? ThisHardwarePath() : config.output;
  PreparePlace(output);
  if (config.settings.offload_directory.empty()) {
    const std::string folder = std::filesystem::path(output).parent_path().string();
    config.settings.offload_directory = folder.empty() ? "." : folder;
  }
  WritesDirectly(config.settings.offload_directory);  // or fails, before anything is measured
  WarnOfLoad();
  bench::Calibration calibration;
  {
    std::unique_ptr<ProgressLine> line;
    calibration = bench::Calibrate(config.settings, [&](int64_t done, int64_t total) {
      if (!line) line = std::make_unique<ProgressLine>("measuring", ProgressUnit{1, "cases"}, total);
      line->Update(done);
    });
  }
  if (calibration.disturbed)
    WarnOfOtherWork("other work took part of the cores while some of the rates were measured");
  WriteFileAtomically(output, HardwareFile(calibration, Today()));
  Show(Summary(calibration) + fmt::format("{:<9} {}\n", "hardware", output));
}

}  // namespace longspan
