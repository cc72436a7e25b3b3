// `longspan calibrate` and a plan for the machine that it measured, beside the run itself.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/format.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/program.h"

namespace longspan {
namespace {

using namespace testing;

class CalibrateProgram : public ::testing::Test {
 protected:
  ProgramResult Run(const std::string& arguments) const {
    return RunShell(fmt::format("export XDG_CONFIG_HOME='{}'; \"$longspan\" {} 2>&1 </dev/null",
                                directory_.path(), arguments));
  }
  std::string file() const { return directory_ / "longspan/hardware/this.yml"; }

  TemporaryDirectory directory_;
};

TEST_F(CalibrateProgram, MeasuresWhatPlansRead) {
  const ProgramResult before = Run("plan model_path=tiny hardware=this");
  EXPECT_EQ(before.exit_code, 2);
  EXPECT_NE(before.output.find("longspan calibrate"), std::string::npos) << before.output;

  const ProgramResult calibrated = Run("calibrate runs=1 max_target_length=1024");
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.output;
  EXPECT_NE(calibrated.output.find(file()), std::string::npos) << calibrated.output;
  const std::string text = ReadTextFile(file());
  for (const char* part :
       {"# Measured by longspan calibrate", "kind: cpu", "peak_tflops_bfloat16: ", "matmul_efficiency: {",
        "attention_backward_efficiency_float32: {", "\"rope\"", "disk_read_gbps: "})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_ / "longspan/hardware"),
                          std::filesystem::directory_iterator()),
            1);  // nothing else is left

  // The same memory as the run's, name by name and byte by byte, whatever it offloads and splits.
  WriteText(directory_ / "text.txt", std::string(9000, 'a'));
  const std::string offload = "remat_policy=custom decoder_layer_input=offload offload_directory=";
  const std::string all_keys[] = {"ranks=1", "ranks=2 threads_per_rank=1 shard_parameters=true dtype=float32",
                                  "ranks=2 context_parallel_strategy=ulysses " + offload + directory_.path()};
  for (const std::string& keys : all_keys) {
    const std::string words = "model_path=tiny max_target_length=4096 " + keys;
    const ProgramResult planned = Run("plan hardware=this " + words + " --format json");
    ASSERT_EQ(planned.exit_code, 0) << planned.output;
    const nlohmann::json plan = nlohmann::json::parse(planned.output);
    EXPECT_GT(plan["step_seconds"], 0);
    EXPECT_EQ(plan["fits"], true);
    std::filesystem::remove_all(directory_ / "runs");
    const ProgramResult run =
        Run(fmt::format("train {0} data_path={1}/text.txt base_output_directory={1}/runs run_name=a steps=1 "
                        "peak_tflops=1 enable_checkpointing=false",
                        words, directory_.path()));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const auto metrics = ReadMetrics(directory_ / "runs/a");
    ASSERT_EQ(metrics.size(), 1u);
    EXPECT_EQ(plan["device_memory_bytes"], metrics[0]["memory_peak_bytes"]) << keys;
    EXPECT_NE(
        run.output.find("memory    " + FormatBytes(plan["device_memory_bytes"].get<int64_t>()) + " a rank"),
        std::string::npos)
        << run.output;
    for (const char* where : {"memory", "disk"})
      for (const auto& [name, bytes] : plan[where].items()) {
        const std::string shown = FormatBytes(bytes.get<int64_t>());
        const size_t line = run.output.find("          " + name + " ");
        ASSERT_NE(line, std::string::npos) << name << "\n" << run.output;
        EXPECT_NE(run.output.substr(line, run.output.find('\n', line) - line).find(" " + shown),
                  std::string::npos)
            << name << " " << shown << "\n"
            << run.output;
      }
  }
}

TEST_F(CalibrateProgram, ErrorsComeBeforeMeasuring) {
  const auto refused = [&](const std::string& arguments, int code, const std::string& part) {
    const ProgramResult result = Run("calibrate " + arguments);
    EXPECT_EQ(result.exit_code, code) << result.output;
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
    EXPECT_FALSE(std::filesystem::exists(file()));
  };
  refused("runs=0", 2, "runs");
  refused("outptu=x", 2, "'output'");
  refused("max_target_length=100", 2, "max_target_length");
  refused("output=" + directory_.path(), 2, "is a folder");
  refused("offload_directory=/not/here", 4, "offload_directory '/not/here'");
}

}  // namespace
}  // namespace longspan
