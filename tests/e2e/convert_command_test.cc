// `longspan convert`, as a person calls it.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/program.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::RunProgram;

class ConvertProgram : public ::testing::Test {
 protected:
  ConvertProgram() {
    testing::WriteText(text_, std::string(1000, 'a'));
    const ProgramResult train = RunProgram(fmt::format(
        "train model_path=tiny data_path={} base_output_directory={} run_name=a max_target_length=64 steps=1 "
        "threads_per_rank=1 peak_tflops=1 save_dtype=bfloat16",
        text_, directory_ / "runs"));
    EXPECT_EQ(train.exit_code, 0) << train.output;
  }
  void ExpectRefused(const std::string& arguments, int exit_code, const std::string& message) {
    const ProgramResult result = RunProgram("convert " + arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.output;
    EXPECT_NE(result.output.find(message), std::string::npos) << result.output;
    EXPECT_FALSE(fs::exists(directory_ / "out"));
  }

  testing::TemporaryDirectory directory_;
  const std::string text_ = directory_ / "text.txt", run_ = directory_ / "runs/a", out_ = directory_ / "out";
};

TEST_F(ConvertProgram, ARunBecomesAModelAndTrainsOn) {
  const ProgramResult convert =
      RunProgram(fmt::format("convert {} output={} dtype=float32 max_shard_bytes=100000", run_, out_));
  ASSERT_EQ(convert.exit_code, 0) << convert.output;
  EXPECT_NE(convert.output.find("model     " + run_ + "/checkpoints/00000001"), std::string::npos)
      << convert.output;
  EXPECT_TRUE(fs::exists(out_ + "/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(out_ + "/state.json"));

  const ProgramResult checkpoint =
      RunProgram(fmt::format("convert {} output={} format=checkpoint", out_, directory_ / "start"));
  ASSERT_EQ(checkpoint.exit_code, 0) << checkpoint.output;
  const auto train = [&](const std::string& name, const std::string& more) {
    const ProgramResult result = RunProgram(fmt::format(
        "train model_path={} data_path={} base_output_directory={} run_name={} max_target_length=64 steps=2 "
        "threads_per_rank=1 peak_tflops=1 {}",
        out_, text_, directory_ / "runs", name, more));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return ReadTextFile(directory_ / ("runs/" + name + "/checkpoints/latest/optimizer.safetensors"));
  };
  EXPECT_TRUE(train("b", "") == train("c", "resume=" + (directory_ / "start")));
}

TEST_F(ConvertProgram, WhatIsWrongIsSaid) {
  ExpectRefused("", 2, "model_path is not given");
  ExpectRefused(run_, 2, "output is not given");
  ExpectRefused(run_ + " output=" + out_ + " dtype=float16", 2,
                "dtype wants one of stored, float32, bfloat16");
  ExpectRefused(run_ + " " + run_ + " output=" + out_, 2, "two values for model_path");
  ExpectRefused(run_ + " outputs=" + out_, 2, "did you mean 'output'?");
  ExpectRefused(directory_ / "nothing" + " output=" + out_, 3, "nothing is no directory");
  ExpectRefused(run_ + " output=" + run_, 2, "not empty");
  const ProgramResult help = RunProgram("convert --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.output.find("dtype=stored|float32|bfloat16  [stored]"), std::string::npos) << help.output;
}

}  // namespace
}  // namespace longspan
