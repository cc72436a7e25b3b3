// Offloading as a person sees it: what the program says of it, and what it leaves in the folder.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/files.h"
#include "support/program.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::RunProgram;
using testing::RunShell;

class OffloadProgram : public ::testing::Test {
 protected:
  OffloadProgram() {
    fs::create_directory(tier_);
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i * i << " of the text\n";
  }

  std::string Words(const std::string& more, const std::string& name = "a") const {
    return fmt::format(
        "train model_path=tiny data_path={0}/text.txt base_output_directory={0}/runs run_name={2} ranks=2 "
        "max_target_length=256 threads_per_rank=1 peak_tflops=1 remat_policy=custom "
        "decoder_layer_input=offload "
        "context=offload {1}",
        directory_.path(), more, name);
  }

  testing::TemporaryDirectory directory_;
  const std::string tier_ = directory_ / "tier";
};

TEST_F(OffloadProgram, SaysWhereItGoesAndLeavesNothingThere) {
  const ProgramResult disk = RunProgram(Words("steps=2 offload_directory=" + tier_));
  EXPECT_EQ(disk.exit_code, 0) << disk.output;
  EXPECT_NE(disk.output.find("a rank in " + tier_), std::string::npos) << disk.output;
  EXPECT_NE(disk.output.find("written a step"), std::string::npos) << disk.output;
  EXPECT_NE(disk.output.find("activations in flight"), std::string::npos) << disk.output;
  EXPECT_NE(disk.output.find("page cache"), std::string::npos) << disk.output;
  EXPECT_TRUE(fs::is_empty(tier_));
  const auto rows = testing::ReadMetrics(directory_ / "runs/a");
  ASSERT_EQ(rows.size(), 2u);
  // Two layers on two ranks: input (128, 128), context (128, 4, 32) bf16, log-sum-exp (128, 4) f32.
  EXPECT_EQ(rows[1]["offload_bytes_written"], 2 * 2 * (2 * 32768 + 4096));  // in blocks of 4,096

  const ProgramResult host = RunProgram(Words("steps=1", "b"));
  EXPECT_EQ(host.exit_code, 0) << host.output;
  EXPECT_NE(host.output.find("a rank in host memory"), std::string::npos) << host.output;
}

TEST_F(OffloadProgram, SaysWhatOfTheOptimizerGoesThere) {
  const ProgramResult run = RunProgram(
      fmt::format("train model_path=tiny data_path={0}/text.txt base_output_directory={0}/runs run_name=a "
                  "ranks=2 steps=2 "
                  "max_target_length=256 threads_per_rank=1 peak_tflops=1 optimizer_memory_host_offload=true",
                  directory_.path()));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("a rank in host memory"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("optimizer in flight"), std::string::npos) << run.output;
  const auto rows = testing::ReadMetrics(directory_ / "runs/a");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_GT(rows[1]["offload_bytes_written"], 0);
}

TEST_F(OffloadProgram, AFolderInMemoryWillDo) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  const ProgramResult run = RunProgram(Words("steps=1 offload_directory=/dev/shm"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("page cache"), std::string::npos) << run.output;
}

// A limit on file sizes stands for a disk that is full: found before the first step, and before the run's
// folder changes.
TEST_F(OffloadProgram, WithoutRoomItSaysSoBeforeTheFirstStep) {
  const ProgramResult run = RunShell(
      fmt::format("ulimit -f 64; \"$longspan\" {} 2>&1 </dev/null", Words("offload_directory=" + tier_)));
  EXPECT_EQ(run.exit_code, 4) << run.output;
  EXPECT_NE(run.output.find("offload_directory '" + tier_ + "' has no room for"), std::string::npos)
      << run.output;
  EXPECT_EQ(run.output.find(" loss "), std::string::npos) << run.output;
  EXPECT_TRUE(fs::is_empty(tier_));
  EXPECT_FALSE(fs::exists(directory_ / "runs/a"));
}

TEST_F(OffloadProgram, AFolderThatIsNotThereIsRefused) {
  const ProgramResult run = RunProgram(Words("offload_directory=" + tier_ + "/none"));
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_NE(run.output.find("none is not a folder"), std::string::npos) << run.output;
}

TEST_F(OffloadProgram, AKilledRunLeavesNothingThere) {
  // While it runs each of the two ranks has a file that has no name.
  const ProgramResult run = RunShell(fmt::format(
      R"sh("$longspan" {0} >{1}/log 2>&1 </dev/null & pid=$!
      for i in $(seq 600); do grep -q '"step":2' {1}/runs/a/metrics.jsonl 2>/dev/null && break; sleep 0.05; done
      echo "files $(ls -l /proc/$pid/fd | grep -c '{2}/.*(deleted)')"
      kill -9 $pid; wait $pid 2>/dev/null; echo "left $(ls -A {2} | wc -l)")sh",
      Words("steps=1000000 enable_checkpointing=false optimizer_memory_host_offload=true offload_directory=" +
            tier_),
      directory_.path(), tier_));
  EXPECT_NE(run.output.find("files 2\n"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("left 0\n"), std::string::npos) << run.output;
}

}  // namespace
}  // namespace longspan
