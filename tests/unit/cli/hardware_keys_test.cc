#include "cli/hardware_keys.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/backend.h"
#include "cli/calibrate_command.h"
#include "core/machine.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

using namespace testing;

// A variable of the environment, as long as a test lasts.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* const before = std::getenv(name);
    if (before != nullptr) before_ = before;
    had_one_ = before != nullptr;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (had_one_) {
      setenv(name_, before_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* const name_;
  std::string before_;
  bool had_one_ = false;
};

bench::Calibration Measured() {
  bench::Calibration calibration{.hardware = {}, .bfloat16_unit = "a unit", .float32_unit = "another"};
  Hardware& h = calibration.hardware;
  h.hardware_name = "this";
  h.kind = "cpu";
  h.cpu_model = CpuModel();
  h.cpu_target = CpuTargetName();
  h.cores = NumCores();
  h.device_memory_gib = 23.5;
  h.peak_tflops_bfloat16 = 0.2364;
  h.peak_tflops_float32 = 0.1182;
  h.kernels.matmul_efficiency = {{"31", "0.5"}, {"410", "0.93"}};
  h.kernels.attention_forward_efficiency = {{"64", "0.83"}, {"128", "0.87"}};
  h.kernels.attention_backward_efficiency = {{"64", "0.8"}};
  h.kernels.attention_forward_gbps = {{"64", "3"}};
  h.kernels.operation_gbps = {{"glu backward", "5.25"}, {"rope", "7"}};
  h.kernels_float32.weight_gradient_efficiency = {{"", "0.75"}};
  h.matmul_threads_efficiency = {{"2", "0.98"}};
  h.threads_us = {{"2", "1.5"}};
  h.memory_gbps = 10.5;
  h.link_gbps = 5;
  h.message_us = 20;
  h.host_gbps = 5;
  h.disk_gbps = 1.25;
  h.disk_read_gbps = 2;
  return calibration;
}

std::string WithAll(const Hardware& hardware) {
  Hardware copy;
  const KeyList keys = HardwareKeys(copy);
  copy = hardware;
  return WriteRecipe(keys);
}

TEST(HardwareFile, ReadsBackAsItWasMeasured) {
  const TemporaryDirectory directory;
  const bench::Calibration measured = Measured();
  const std::string text = HardwareFile(measured, "2026-01-02");
  EXPECT_EQ(text.rfind("# Measured by longspan calibrate on 2026-01-02: ", 0), 0u) << text;
  EXPECT_NE(text.find("a unit (bfloat16) and another (float32)"), text.npos) << text;
  EXPECT_EQ(text.find("topology"), text.npos) << text;  // keys that nobody set
  const Hardware read = LoadHardware(WriteText(directory / "mine.yml", text));
  EXPECT_EQ(WithAll(read), WithAll(measured.hardware));
  EXPECT_EQ(read.kernels.operation_gbps, measured.hardware.kernels.operation_gbps);
}

TEST(HardwareFile, ThisIsFoundBelowTheUsersConfiguration) {
  const TemporaryDirectory directory;
  const Variable config("XDG_CONFIG_HOME", directory.path());
  EXPECT_EQ(ThisHardwarePath(), directory / "longspan/hardware/this.yml");
  ExpectError(
      {"this.yml", "longspan calibrate"}, [] { LoadHardware("this"); }, ExitCode::kUsage);
  WriteText(ThisHardwarePath(), HardwareFile(Measured(), "2026-01-02"));
  EXPECT_EQ(LoadHardware("this").hardware_name, "this");
  {
    const Variable relative("XDG_CONFIG_HOME", "not/absolute"), home("HOME", "/home/somebody");
    EXPECT_EQ(ThisHardwarePath(), "/home/somebody/.config/longspan/hardware/this.yml");
    const Variable no_home("HOME", "");
    ExpectError(
        {"HOME"}, [] { ThisHardwarePath(); }, ExitCode::kUsage);
  }
}

TEST(HardwareFile, BadOnesAreRefused) {
  const TemporaryDirectory directory;
  const std::string good = HardwareFile(Measured(), "2026-01-02");
  const auto refused = [&](const std::string& from, const std::string& to,
                           std::initializer_list<std::string_view> parts) {
    std::string bad = good;
    const size_t at = bad.find(from);
    ASSERT_NE(at, bad.npos) << from;
    bad.replace(at, from.size(), to);
    const std::string path = WriteText(directory / "bad.yml", bad);
    ExpectError(
        parts, [&] { LoadHardware(path); }, ExitCode::kUsage);
  };
  refused("kind: cpu", "kind: gpu", {"bad.yml", "kind", "cpu"});
  refused("\"31\": \"0.5\"", "\"31\": \"1.5\"", {"bad.yml", "matmul_efficiency", "1.5"});
  refused("\"31\": \"0.5\"", "\"31\": \"half\"", {"bad.yml", "matmul_efficiency", "half"});
  refused("\"31\": \"0.5\"", "\"-31\": \"0.5\"", {"bad.yml", "matmul_efficiency", "-31"});
  refused("\"rope\": \"7\"", "\"rope\": \"-7\"", {"bad.yml", "operation_gbps", "rope"});
  refused("\"2\": \"1.5\"", "\"two\": \"1.5\"", {"bad.yml", "threads_us", "two"});
  refused("memory_gbps: 10.5", "memory_gbps: 0", {"bad.yml", "memory_gbps"});
  refused("memory_gbps: 10.5", "", {"memory_gbps is not given"});
  refused("kind: cpu", "kind: cpu\ntopology: torus", {"bad.yml", "torus"});
}

TEST(HardwareFile, OfAnotherCpuIsReadWithAWarning) {
  const TemporaryDirectory directory;
  bench::Calibration other = Measured();
  other.hardware.cpu_model = "Another CPU";
  other.hardware.cores += 2;
  const std::string path = WriteText(directory / "other.yml", HardwareFile(other, "2026-01-02"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(LoadHardware(path).cores, other.hardware.cores);
  const std::string warning = ::testing::internal::GetCapturedStderr();
  for (const char* part : {"warning", "other.yml", "Another CPU", "longspan calibrate"})
    EXPECT_NE(warning.find(part), warning.npos) << warning;
  ::testing::internal::CaptureStderr();
  LoadHardware(WriteText(directory / "same.yml", HardwareFile(Measured(), "2026-01-02")));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace longspan
