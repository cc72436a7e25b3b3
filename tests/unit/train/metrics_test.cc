#include "train/metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "train/run_directory.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(path_); }
  void TearDown() override { fs::remove_all(path_); }
  const std::string path_ = testing::TempDir() + "longspan_run_directory_test";
};

TEST(MetricsLine, KeepsEveryDigitAndTheOrderOfFields) {
  StepMetrics m;
  m.step = 7;
  m.loss = 1.0 / 3;
  m.grad_norm = 0.1;
  m.tokens = int64_t{1} << 40;
  const std::string line = MetricsLine(m);
  ASSERT_EQ(line.back(), '\n');
  const auto json = nlohmann::ordered_json::parse(line);
  EXPECT_EQ(json["loss"].get<double>(), 1.0 / 3);
  EXPECT_EQ(json["tokens"].get<int64_t>(), int64_t{1} << 40);
  EXPECT_TRUE(json["mfu"].is_null());
  EXPECT_TRUE(json["hfu"].is_null());
  EXPECT_FALSE(json.contains("eval_loss"));
  EXPECT_FALSE(json.contains("offload_bytes_written"));
  EXPECT_FALSE(json.contains("offload_wait_seconds"));
  EXPECT_EQ(json.begin().key(), "step");
  m.mfu = 0.5;
  m.eval_loss = 2.5;
  m.offload_bytes_written = int64_t{1} << 41;
  m.offload_wait_seconds = 0.25;
  const auto full = nlohmann::json::parse(MetricsLine(m));
  EXPECT_EQ(full["mfu"], 0.5);
  EXPECT_EQ(full["eval_loss"], 2.5);
  EXPECT_EQ(full["offload_bytes_written"], int64_t{1} << 41);
  EXPECT_EQ(full["offload_wait_seconds"], 0.25);
}

TEST(ReadStepMetrics, ReadsWhatWasWrittenAndLeavesOutWhatWasNot) {
  StepMetrics full, bare;
  full.step = 7;
  full.loss = 1.0 / 3;
  full.grad_norm = 0.1;
  full.learning_rate = 1e-5;
  full.tokens = int64_t{1} << 40;
  full.padding = 0.25;
  full.step_seconds = 1.5;
  full.tokens_per_second = 2.5;
  full.tflops_per_second = 3.5;
  full.mfu = 0.5;
  full.hfu = 0.75;
  full.communication_wait_seconds = 0.125;
  full.memory_peak_bytes = 1234;
  full.offload_bytes_written = int64_t{1} << 41;
  full.offload_wait_seconds = 0.0625;
  full.eval_loss = 2.5;
  bare.step = 8;
  bare.loss = std::numeric_limits<double>::infinity();
  const std::string path = testing::TempDir() + "longspan_read_metrics_test.jsonl";
  WriteFileAtomically(path, MetricsLine(full) + "{\"step\":\"x\"}\n[1]\nno JSON\n\n" +
                                "{\"step\":0}\n{\"step\":-1}\n{\"step\":18446744073709551615}\n" +
                                MetricsLine(bare) + "{\"step\":9,\"lo");
  const std::vector<StepMetrics> read = ReadStepMetrics(path);
  RemoveFile(path);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(MetricsLine(read[0]), MetricsLine(full));
  EXPECT_EQ(read[1].step, 8);
  EXPECT_TRUE(std::isnan(read[1].loss));
  EXPECT_EQ(read[1].mfu, std::nullopt);
  EXPECT_EQ(read[1].eval_loss, std::nullopt);
}

TEST(TensorBoardScalars, HaveMaxTextsNames) {
  StepMetrics m;
  m.loss = 2;
  m.grad_norm = 3;
  m.learning_rate = 4;
  m.step_seconds = 5;
  m.tokens_per_second = 6;
  m.tflops_per_second = 7;
  const auto by_tag = [&](double threshold) {
    std::map<std::string, double> values;
    for (const Scalar& scalar : TensorBoardScalars(m, threshold))
      values[std::string(scalar.tag)] = scalar.value;
    return values;
  };
  std::map<std::string, double> wanted = {{"learning/loss", 2},
                                          {"learning/raw_grad_norm", 3},
                                          {"learning/grad_norm", 1},
                                          {"learning/current_learning_rate", 4},
                                          {"perf/step_time_seconds", 5},
                                          {"perf/per_device_tokens_per_sec", 6},
                                          {"perf/per_device_tflops_per_sec", 7}};
  EXPECT_EQ(by_tag(1), wanted);
  wanted["learning/grad_norm"] = 3;
  EXPECT_EQ(by_tag(5), wanted);
  m.mfu = wanted["perf/mfu"] = 0.5;
  m.eval_loss = wanted["eval/avg_loss"] = 8;
  EXPECT_EQ(by_tag(0), wanted);  // no clipping
}

TEST_F(RunDirectoryTest, ResumingCutsTheMetricsBackToTheCheckpoint) {
  { RunDirectory open(path_, "none", {}, "steps: 3\n", 0); }
  EXPECT_EQ(ReadTextFile(path_ + "/config.yml"), "steps: 3\n");
  std::string kept;
  {
    MetricsLog log(MetricsIn(path_));
    for (int64_t step = 1; step <= 5; ++step) {
      StepMetrics m;
      m.step = step;
      log.Append(m);
      if (step <= 3) kept += MetricsLine(m);
    }
  }
  { RunDirectory open(path_, "auto", {}, "steps: 5\n", 3); }
  EXPECT_EQ(ReadTextFile(MetricsIn(path_)), kept);
  // A line that a kill cut short goes too.
  WriteFileAtomically(MetricsIn(path_), kept + "{\"step\":4,\"lo");
  { RunDirectory open(path_, "auto", {}, "steps: 5\n", 4); }
  EXPECT_EQ(ReadTextFile(MetricsIn(path_)), kept);
}

TEST_F(RunDirectoryTest, AFreshStartIsRefusedWhereStepsAre) {
  EXPECT_EQ(CheckpointToResume(path_, "none"), "");
  EXPECT_EQ(CheckpointToResume(path_, "auto"), "");
  { RunDirectory open(path_, "none", {}, "", 0); }
  EXPECT_EQ(CheckpointToResume(path_, "none"), "");
  {
    MetricsLog log(MetricsIn(path_));
    log.Append(StepMetrics{});
  }
  try {
    CheckpointToResume(path_, "none");
    FAIL() << "was not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(e.what()).find("resume=auto"), std::string::npos);
  }
  EXPECT_THROW(CheckpointToResume(path_, path_ + "/no_such_checkpoint"), Error);
}

TEST_F(RunDirectoryTest, OneRunAtATime) {
  RunDirectory open(path_, "none", {}, "", 0);
  try {
    RunDirectory second(path_, "none", {}, "", 0);
    FAIL() << "was not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(e.what()).find("in use"), std::string::npos);
  }
}

TEST_F(RunDirectoryTest, AnotherRunsCheckpointIsRefusedWhereStepsAre) {
  const std::string own = CheckpointsIn(path_) + "/00000002", others = path_ + "/other/checkpoints/00000001";
  fs::create_directories(own);
  fs::create_directories(others);
  EXPECT_EQ(CheckpointToResume(path_, own), fs::canonical(own));
  EXPECT_THROW(CheckpointToResume(path_, others), Error);
  EXPECT_EQ(CheckpointToResume(path_ + "/fresh", others), fs::canonical(others));
}

// A run that goes back: `latest` is where it goes on, and what a killed run left is gone.
TEST_F(RunDirectoryTest, TheLinkNamesWhatTheRunGoesOnFrom) {
  const std::string checkpoints = CheckpointsIn(path_);
  for (const char* name : {"00000002", "00000010", ".tmp-00000012", ".tmp-latest"})
    fs::create_directories(checkpoints + "/" + name);
  fs::create_directory_symlink("00000010", checkpoints + "/latest");
  const std::string from = fs::canonical(checkpoints + "/00000002");
  { RunDirectory open(path_, from, {from, from}, "", 2); }
  EXPECT_EQ(fs::read_symlink(checkpoints + "/latest"), "00000002");
  EXPECT_FALSE(fs::exists(checkpoints + "/.tmp-00000012"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(checkpoints + "/.tmp-latest")));
  EXPECT_EQ(CheckpointToResume(path_, "auto"), checkpoints + "/00000002");
  EXPECT_THROW(RunDirectory(path_, "auto", {}, "", 2), Error);  // another run has been there
}

TEST_F(RunDirectoryTest, TheNewestCheckpointIsFoundWithoutItsLink) {
  for (const char* name : {"00000002", "00000010", "100000000", ".tmp-00000012"})
    fs::create_directories(CheckpointsIn(path_) + "/" + name);
  EXPECT_EQ(CheckpointToResume(path_, "auto"), CheckpointsIn(path_) + "/100000000");
  EXPECT_THROW(CheckpointToResume(path_, "none"), Error);
}

}  // namespace
}  // namespace longspan
