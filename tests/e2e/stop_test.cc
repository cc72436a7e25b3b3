// A run that a signal asks to end saves what it has done, says so once, and goes on later.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/file.h"
#include "support/background_program.h"
#include "support/files.h"
#include "support/runs.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::BackgroundProgram;
using testing::ProgramResult;
using testing::ReadMetrics;
using testing::RunProgram;
using testing::WaitUntil;

class StoppedRun : public ::testing::Test {
 protected:
  StoppedRun() {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 20000; ++i) text << "line " << i * i << " of the text\n";
  }

  std::string Keys(const std::string& run, int64_t steps, const std::string& more) const {
    return fmt::format(
        "train model_path=tiny data_path={0}/text.txt base_output_directory={0}/runs run_name={1} steps={2} "
        "lr_schedule_type=constant warmup_steps_fraction=0 threads_per_rank=1 peak_tflops=1 {3}",
        directory_.path(), run, steps, more);
  }
  std::string Run(const std::string& name) const { return directory_ / ("runs/" + name); }
  // Waits until so many steps have been taken.
  bool HasSteps(const std::string& run, size_t steps) const {
    return WaitUntil([&] {
      if (!Exists(Run(run) + "/metrics.jsonl")) return false;
      const std::string text = ReadTextFile(Run(run) + "/metrics.jsonl");
      return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) >= steps;
    });
  }

  testing::TemporaryDirectory directory_;
};

constexpr int64_t kMany = 100000;

TEST_F(StoppedRun, SavesAndGoesOnBitForBit) {
  for (const auto& [name, signal] : {std::pair("term", SIGTERM), std::pair("int", SIGINT)}) {
    SCOPED_TRACE(name);
    const std::string keys = "max_target_length=128 ranks=2 eval_interval=2 eval_steps=1 eval_data_path=" +
                             (directory_ / "text.txt");
    BackgroundProgram program("\"$longspan\" " + Keys(name, kMany, keys));
    ASSERT_TRUE(HasSteps(name, 2));
    program.Signal(signal);
    const ProgramResult result = program.Wait();
    EXPECT_EQ(result.exit_code, 6) << result.output;

    const int64_t step = std::ssize(ReadMetrics(Run(name)));
    const std::string said = fmt::format(
        "\nstopped   by a signal after step {} of 100000; the same command with resume=auto goes on\n", step);
    EXPECT_NE(result.output.find(said), std::string::npos) << result.output;
    EXPECT_EQ(result.output.find("error"), std::string::npos) << result.output;
    EXPECT_EQ(fs::read_symlink(Run(name) + "/checkpoints/latest"), fmt::format("{:08}", step));
    EXPECT_NE(ReadTextFile(Run(name) + "/report.html").find(fmt::format("step {} of 100,000", step)),
              std::string::npos);

    const std::string straight = fmt::format("straight-{}", name);
    ASSERT_EQ(RunProgram(Keys(name, step + 2, keys + " resume=auto")).exit_code, 0);
    ASSERT_EQ(RunProgram(Keys(straight, step + 2, keys)).exit_code, 0);
    testing::ExpectSameRun(Run(name), Run(straight));
  }
}

TEST_F(StoppedRun, SavesNothingWhereNothingIsSaved) {
  BackgroundProgram program("\"$longspan\" " +
                            Keys("a", kMany, "max_target_length=128 enable_checkpointing=false"));
  ASSERT_TRUE(HasSteps("a", 1));
  program.Signal(SIGTERM);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 6) << result.output;
  EXPECT_NE(result.output.find("of 100000; nothing is saved, as enable_checkpointing=false\n"),
            std::string::npos)
      << result.output;
  EXPECT_FALSE(fs::exists(Run("a") + "/checkpoints"));
}

// In a step that takes far longer than the test.
TEST_F(StoppedRun, ASecondSignalEndsItAtOnce) {
  BackgroundProgram program("\"$longspan\" " + Keys("a", kMany, "max_target_length=131072"));
  ASSERT_TRUE(HasSteps("a", 0));
  program.Signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // or the two may be one
  program.Signal(SIGTERM);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.output;
  EXPECT_TRUE(ReadMetrics(Run("a")).empty());
}

}  // namespace
}  // namespace longspan
