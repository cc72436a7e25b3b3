// Ranks that are processes, which a signal asks to end: all leave after the same step.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/file.h"
#include "mpi/launch.h"
#include "support/background_program.h"
#include "support/files.h"
#include "support/runs.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::BackgroundProgram;
using testing::Count;
using testing::ProgramResult;
using testing::WaitUntil;

constexpr int kRanks = 3;

class StoppedRanks : public ::testing::Test {
 protected:
  StoppedRanks() {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 2000; ++i) text << "line " << i * i << " of the text\n";
  }

  std::string Keys(const std::string& run, int64_t steps, const std::string& more = "") const {
    return fmt::format(
        "train model_path=tiny data_path={0}/text.txt base_output_directory={0}/runs run_name={1} steps={2} "
        "max_target_length=128 lr_schedule_type=constant warmup_steps_fraction=0 threads_per_rank=1 "
        "peak_tflops=1 {3}",
        directory_.path(), run, steps, more);
  }
  std::string Run(const std::string& name) const { return directory_ / ("runs/" + name); }
  // Each rank leaves its process's number and what it says; the launcher would stop reading while it waits.
  std::string Ranks(const std::string& run) const {
    return fmt::format(
        "{} {} sh -c 'echo $$ >{}/pid-${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; exec {} {} >>{}/said 2>&1'",
        LONGSPAN_MPIEXEC, kRanks, directory_.path(), LONGSPAN_PROGRAM, Keys(run, 100000), directory_.path());
  }
  bool HasSteps(const std::string& run) const {
    return WaitUntil([&] {
      const std::string path = Run(run) + "/metrics.jsonl";
      return Exists(path) && Count(ReadTextFile(path), "\n") >= 2;
    });
  }
  void ExpectSavedAndGoesOn(const std::string& run) const {
    const std::string said = ReadTextFile(directory_ / "said");
    const int64_t step = std::ssize(testing::ReadMetrics(Run(run)));
    EXPECT_EQ(Count(said, fmt::format("\nstopped   by a signal after step {} of 100000;", step)), 1) << said;
    EXPECT_EQ(Count(said, "error"), 0) << said;
    EXPECT_EQ(fs::read_symlink(Run(run) + "/checkpoints/latest"), fmt::format("{:08}", step));
    const std::string ranks = fmt::format(" ranks={}", kRanks);
    ASSERT_EQ(testing::RunProgram(Keys(run, step + 2, "resume=auto" + ranks)).exit_code, 0);
    ASSERT_EQ(testing::RunProgram(Keys("straight", step + 2, ranks)).exit_code, 0);
    testing::ExpectSameRun(Run(run), Run("straight"));
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(StoppedRanks, OneThatIsAskedStopsAll) {
  BackgroundProgram ranks(Ranks("a"));
  ASSERT_TRUE(HasSteps("a"));
  ASSERT_EQ(kill(std::stoi(ReadTextFile(directory_ / "pid-2")), SIGTERM), 0);
  const ProgramResult result = ranks.Wait();
  EXPECT_EQ(result.exit_code, 6) << result.output;
  ExpectSavedAndGoesOn("a");
}

// Open MPI's kills the ranks so many seconds after it has asked them.
TEST_F(StoppedRanks, TheLauncherIsAsked) {
  setenv("OMPI_MCA_odls_base_sigkill_timeout", "5", 1);
  for (const int signal : {SIGTERM, SIGINT}) {
    fs::remove_all(directory_ / "runs");
    fs::remove(directory_ / "said");
    BackgroundProgram ranks(Ranks("a"));
    ASSERT_TRUE(HasSteps("a"));
    ranks.Signal(signal);
    EXPECT_NE(ranks.Wait().exit_code, 0);
    ExpectSavedAndGoesOn("a");
  }
  unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
}

}  // namespace
}  // namespace longspan
