// `longspan verify` started by an MPI launcher.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "mpi/launch.h"
#include "support/files.h"

namespace longspan {
namespace {

using testing::Count;
using testing::Launch;
using testing::ProgramResult;
using testing::RunProgram;

class VerifyProcesses : public ::testing::Test {
 protected:
  VerifyProcesses() {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i * i << " of the text\n";
    std::ofstream(directory_ / "recipe.yml")
        << "model_path: tiny\ndata_path: " << directory_ / "text.txt"
        << "\nbase_output_directory: " << directory_ / "runs"
        << "\nrun_name: a\nmax_target_length: 256\nthreads_per_rank: 1\ndtype: float32\n";
  }
  std::string Verify(const std::string& keys) const {
    return "verify " + (directory_ / "recipe.yml") + " " + keys;
  }

  testing::TemporaryDirectory directory_;
};

// The same figures as with ranks that are threads, told by one rank.
TEST_F(VerifyProcesses, SayWhatThreadsSay) {
  for (const std::string keys : {"--format json context_parallel_strategy=usp",
                                 "context_parallel_strategy=ring shard_parameters=true "
                                 "data_parallelism=2 global_batch_size=2"}) {
    SCOPED_TRACE(keys);
    const ProgramResult threads = RunProgram(Verify(keys + " ranks=4"));
    ASSERT_EQ(threads.exit_code, 0) << threads.output;
    const ProgramResult processes = Launch(4, "\"$longspan\" " + Verify(keys));
    EXPECT_EQ(processes.exit_code, 0) << processes.output;
    EXPECT_EQ(processes.output, threads.output);
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "runs"));
}

TEST_F(VerifyProcesses, GoOnFromACheckpoint) {
  const std::string recipe = directory_ / "recipe.yml";
  const ProgramResult run = RunProgram("train " + recipe + " steps=2 learning_rate_schedule_steps=9");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const ProgramResult verify = Launch(2, "\"$longspan\" " + Verify("steps=9 resume=auto remat_policy=auto"));
  EXPECT_EQ(verify.exit_code, 0) << verify.output;
  EXPECT_EQ(Count(verify.output, "step 3 of tiny"), 1) << verify.output;
  EXPECT_EQ(Count(verify.output, "verdict: equal within rounding"), 1) << verify.output;
}

TEST_F(VerifyProcesses, SayErrorsOnce) {
  const auto expect = [&](const ProgramResult& result, const std::string& error) {
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(Count(result.output, "error: "), 1) << result.output;
    EXPECT_EQ(Count(result.output, error), 1) << result.output;
  };
  expect(Launch(4, "\"$longspan\" " + Verify("--format html")), "html");
  expect(Launch(2, "\"$longspan\" " + Verify("ranks=4")), "the launcher started that many processes");
  const ProgramResult help = Launch(2, "\"$longspan\" verify --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(Count(help.output, "Usage: longspan verify"), 1) << help.output;
}

// The error of the first rank, which begins alone, ends the others, which wait for it.
TEST_F(VerifyProcesses, WhatOneRankCannotTakeIsSaid) {
  const ProgramResult result = Launch(2, "\"$longspan\" " + Verify("max_target_length=67108864"));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(Count(result.output, "rank 0: error: the run needs"), 1) << result.output;
}

}  // namespace
}  // namespace longspan
