#include "train/run_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "train/run_directory.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

StepMetrics MetricsOf(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 1.0 / static_cast<double>(step);
  metrics.grad_norm = 3;
  return metrics;
}

// A job whose run directory is there.
Job MakeJob(const testing::TemporaryDirectory& directory) {
  Job job;
  job.config.base_output_directory = directory.path();
  job.config.run_name = "a";
  job.config.steps = 3;
  fs::create_directory(job.run_directory());
  return job;
}

// Logs these steps; what is printed.
std::string Log(const Job& job, int64_t first_step, int64_t last_step) {
  ::testing::internal::CaptureStdout();
  {
    RunLog log(job, first_step);
    for (int64_t step = first_step; step <= last_step; ++step) log.Add(MetricsOf(step));
  }
  return ::testing::internal::GetCapturedStdout();
}

std::string AllEvents(const Job& job) {
  std::string bytes;
  for (const auto& file : fs::directory_iterator(TensorBoardIn(job.run_directory())))
    bytes += ReadTextFile(file.path().string());
  return bytes;
}

TEST(RunLog, WritesMetricsAndEventsAndShowsProgress) {
  const testing::TemporaryDirectory directory;
  const Job job = MakeJob(directory);
  const std::string shown = Log(job, 1, 2);
  EXPECT_NE(shown.find("step 1/3"), shown.npos) << shown;
  EXPECT_NE(shown.find("step 2/3"), shown.npos) << shown;
  ASSERT_EQ(testing::ReadMetrics(job.run_directory()).size(), 2u);
  // A record for the version, one for the start and one a step.
  const std::string events = AllEvents(job);
  size_t num_losses = 0;
  for (size_t at = events.find("learning/loss"); at != events.npos; at = events.find("learning/loss", at + 1))
    ++num_losses;
  EXPECT_EQ(num_losses, 2u);
  // The norm after clipping, 1 by default, and before.
  EXPECT_NE(events.find(std::string("learning/grad_norm\x15\0\0\x80\x3f", 23)), events.npos);
  EXPECT_NE(events.find(std::string("learning/raw_grad_norm\x15\0\0\x40\x40", 27)), events.npos);

  Log(job, 3, 3);
  EXPECT_EQ(testing::ReadMetrics(job.run_directory()).size(), 3u);
  const fs::directory_iterator files(TensorBoardIn(job.run_directory()));
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST(RunLog, TheReportIsOfAllStepsWhicheverStartWroteThem) {
  const testing::TemporaryDirectory directory;
  const Job job = MakeJob(directory);
  testing::WriteText(ConfigIn(job.run_directory()), "steps: 3\n");
  Log(job, 1, 2);
  ::testing::internal::CaptureStdout();
  {
    RunLog log(job, 3);
    log.Add(MetricsOf(3));
    log.WriteReport({.memory = {{"weights", 3 << 20}}});
  }
  ::testing::internal::GetCapturedStdout();
  const std::string page = ReadTextFile(ReportIn(job.run_directory()));
  for (const char* text : {"step 1: 1<", "step 2: 0.5<", "step 3: 0.33333<", "3.00 MiB", "steps: 3"})
    EXPECT_NE(page.find(text), page.npos) << text;
}

TEST(RunLog, LeavesNoEventsWhereNobodyWantsThem) {
  const testing::TemporaryDirectory directory;
  Job job = MakeJob(directory);
  job.config.enable_tensorboard = false;
  Log(job, 1, 1);
  EXPECT_EQ(testing::ReadMetrics(job.run_directory()).size(), 1u);
  EXPECT_FALSE(fs::exists(TensorBoardIn(job.run_directory())));
}

}  // namespace
}  // namespace longspan
