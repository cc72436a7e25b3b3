// `longspan verify` as a person has it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/files.h"
#include "support/program.h"

namespace longspan {
namespace {

using testing::ProgramResult;
using testing::RunProgram;

class VerifyProgram : public ::testing::Test {
 protected:
  VerifyProgram() {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i * i << " of the text\n";
    std::ofstream(directory_ / "recipe.yml")
        << "model_path: tiny\ndata_path: " << directory_ / "text.txt"
        << "\nbase_output_directory: " << directory_ / "runs"
        << "\nrun_name: a\nmax_target_length: 256\nranks: 4\nthreads_per_rank: 1\n"
           "context_parallel_strategy: usp\npeak_tflops: 1\n";
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(VerifyProgram, SaysThatAMeshIsRightAndWritesNothing) {
  const ProgramResult table = RunProgram("verify " + (directory_ / "recipe.yml"));
  EXPECT_EQ(table.exit_code, 0) << table.output;
  for (const char* text : {"step 1 of tiny in bfloat16", "one rank", "4 ranks: data 1", "strategy usp",
                           "gradient norm", "updated weights", "verdict: equal within rounding"})
    EXPECT_NE(table.output.find(text), table.output.npos) << table.output << "\nlacks " << text;
  const ProgramResult json = RunProgram("verify " + (directory_ / "recipe.yml") +
                                        " dtype=float32 context_parallel_strategy=ring --format json");
  EXPECT_EQ(json.exit_code, 0) << json.output;
  const nlohmann::json report = nlohmann::json::parse(json.output);
  EXPECT_EQ(report["equal"], true);
  EXPECT_EQ(report["context_parallelism"], 4);
  EXPECT_LT(report["differences"]["gradient"], 1e-4);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "runs"));
}

// Also where the run has come to, and what it left to be chosen.
TEST_F(VerifyProgram, GoesOnFromACheckpoint) {
  const std::string recipe = directory_ / "recipe.yml";
  const ProgramResult run = RunProgram("train " + recipe + " steps=2 learning_rate_schedule_steps=9");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const ProgramResult verify = RunProgram("verify " + recipe + " steps=9 resume=auto remat_policy=auto");
  EXPECT_EQ(verify.exit_code, 0) << verify.output;
  EXPECT_NE(verify.output.find("step 3 of tiny"), std::string::npos) << verify.output;
  EXPECT_EQ(testing::ReadMetrics(directory_ / "runs/a").size(), 2u);
}

TEST_F(VerifyProgram, BadInput) {
  const ProgramResult format = RunProgram("verify " + (directory_ / "recipe.yml") + " --format html");
  EXPECT_EQ(format.exit_code, 2) << format.output;
  const ProgramResult missing = RunProgram("verify model_path=tiny");
  EXPECT_EQ(missing.exit_code, 2) << missing.output;
  EXPECT_NE(missing.output.find("data_path"), std::string::npos) << missing.output;
}

}  // namespace
}  // namespace longspan
