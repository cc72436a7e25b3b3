// What a person can look at of a run, while it goes on and after it was stopped.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/file.h"
#include "support/files.h"
#include "support/program.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::RunProgram;

class ObservedRun : public ::testing::Test {
 protected:
  ObservedRun() {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 2000; ++i) text << "line " << i * i << " of the text\n";
  }

  ProgramResult Train(const std::string& more) const {
    return RunProgram(fmt::format(
        "train model_path=tiny data_path={0}/text.txt base_output_directory={0}/runs run_name=a "
        "max_target_length=256 ranks=2 threads_per_rank=1 peak_tflops=1 "
        "learning_rate_schedule_steps=6 eval_data_path={0}/text.txt eval_steps=1 eval_interval=2 {1}",
        directory_.path(), more));
  }
  std::string Run() const { return directory_ / "runs/a"; }
  std::string Report() const { return ReadTextFile(Run() + "/report.html"); }
  int64_t NumEventFiles() const {
    const fs::directory_iterator files(Run() + "/tensorboard");
    return std::distance(begin(files), end(files));
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(ObservedRun, HasAReportAndEventsOfAllItsStarts) {
  const ProgramResult first = Train("steps=3");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_NE(first.output.find("report    " + Run() + "/report.html"), std::string::npos) << first.output;
  EXPECT_EQ(NumEventFiles(), 1);
  EXPECT_NE(Report().find("step 3 of 3"), std::string::npos);

  const ProgramResult second = Train("steps=6 resume=auto profile=true");
  ASSERT_EQ(second.exit_code, 0) << second.output;
  EXPECT_EQ(NumEventFiles(), 2);
  const std::string report = Report();
  for (const char* text :
       {"step 6 of 6", "step 1: ", "step 6: ", "held-out", "MFU", "waiting for other ranks", "optimizer",
        "Traced steps of the first rank", "max_target_length: 256"})
    EXPECT_NE(report.find(text), report.npos) << text;
}

// Weights that explode (by their decay, 1e5 times themselves a step): the error says where it began.
TEST_F(ObservedRun, SaysWhereItStoppedBeingFinite) {
  const ProgramResult run = Train(
      "steps=6 enable_tensorboard=false learning_rate=1000000 lr_schedule_type=constant "
      "warmup_steps_fraction=0 dtype=float32");
  EXPECT_EQ(run.exit_code, 3) << run.output;
  const size_t error = run.output.find(": error: step ");
  ASSERT_NE(error, std::string::npos) << run.output;
  for (const char* text : {"is not finite. The first tensor that isn't is ", " on rank ",
                           "the weights were left as they were", "skip_step_on_nan=true"})
    EXPECT_NE(run.output.find(text, error), std::string::npos) << run.output << "\nlacks " << text;
  EXPECT_FALSE(fs::exists(Run() + "/tensorboard"));
}

}  // namespace
}  // namespace longspan
