// A run that stops and goes on is the run that never stopped.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <tuple>

#include "core/file.h"
#include "support/files.h"
#include "support/program.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::RunProgram;

// metrics.jsonl with the fields that depend on time blanked, every other byte kept.
std::string TimelessMetrics(const std::string& run_directory) {
  static const std::regex times(
      "\"(step_seconds|tokens_per_second|tflops_per_second|mfu|hfu|communication_wait_seconds)\":[^,}]*");
  return std::regex_replace(ReadTextFile(run_directory + "/metrics.jsonl"), times, "\"$1\":");
}

// A folder of documents shorter and longer than the sequence, so that ten steps see packing, cuts and a
// second epoch.
class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    fs::create_directory(directory_ / "texts");
    for (int document = 0; document < 9; ++document) {
      std::ofstream text(directory_ / fmt::format("texts/{}.txt", document));
      for (int i = 0; i < 3 + 5 * document; ++i)
        text << "document " << document << " says " << i * i * 7 % 101 << "\n";
    }
  }

  // Trains run `name` on up to `steps`, as the straight run of ten would have.
  void Train(const std::string& name, int steps, const std::string& more) {
    const ProgramResult run =
        RunProgram(fmt::format("train model_path=tiny data_path={0}/texts base_output_directory={0}/runs "
                               "run_name={1} max_target_length=384 "
                               "steps={2} learning_rate_schedule_steps=10 learning_rate=3e-3 "
                               "checkpoint_period=5 eval_data_path={0}/texts/3.txt "
                               "eval_interval=2 threads_per_rank=1 peak_tflops=1 {3}",
                               directory_.path(), name, steps, more));
    ASSERT_EQ(run.exit_code, 0) << run.output;
  }
  std::string Run(const std::string& name) const { return directory_ / ("runs/" + name); }

  testing::TemporaryDirectory directory_;
};

class Resume : public ResumeTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(Resume, EqualsTheStraightRunBitForBit) {
  Train("straight", 10, GetParam());
  Train("stopped", 5, GetParam());
  Train("stopped", 10, GetParam() + " resume=auto");
  // Went on past its last checkpoint and was then killed: the steps since are taken again.
  Train("killed", 7, GetParam());
  Train("killed", 10, GetParam() + " resume=" + Run("killed") + "/checkpoints/00000005");

  const std::string metrics = TimelessMetrics(Run("straight"));
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 10);
  for (const char* name : {"stopped", "killed"}) {
    EXPECT_EQ(TimelessMetrics(Run(name)), metrics) << name;
    EXPECT_EQ(fs::read_symlink(Run(name) + "/checkpoints/latest"), "00000010");
    for (const auto& entry : fs::directory_iterator(Run("straight") + "/checkpoints/00000010"))
      EXPECT_TRUE(ReadTextFile(entry.path().string()) ==
                  ReadTextFile(Run(name) + "/checkpoints/00000010/" + entry.path().filename().string()))
          << name << ": " << entry.path().filename();
  }
}

// Who starts a run again until it ends with 0 is done when it is.
TEST_F(ResumeTest, ACompleteRunSaysSoAndStaysAsItIs) {
  Train("whole", 5, "");
  const auto content = [&] {
    std::string all;
    for (const char* file : {"metrics.jsonl", "report.html", "checkpoints/latest/checksums.json"})
      all += ReadTextFile(Run("whole") + "/" + file);
    return all;
  };
  const std::string before = content();
  const std::string again =
      fmt::format("train {0}/runs/whole/config.yml resume=auto base_output_directory={0}/runs run_name=whole",
                  directory_.path());
  const ProgramResult run = RunProgram(again);
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("\ncomplete  5 steps before;"), std::string::npos) << run.output;
  EXPECT_EQ(content(), before);
  const ProgramResult too_many = RunProgram(again + " steps=4");
  EXPECT_EQ(too_many.exit_code, 2) << too_many.output;
  EXPECT_NE(too_many.output.find("is at step 5 already and steps is 4"), std::string::npos)
      << too_many.output;
}

INSTANTIATE_TEST_SUITE_P(
    Runs, Resume,
    ::testing::Values("dtype=float32", "ranks=2 dtype=bfloat16 context_parallel_strategy=ring",
                      "ranks=4 data_parallelism=2 global_batch_size=4 context_parallel_strategy=usp",
                      "ranks=4 fsdp_parallelism=2 shard_parameters=true global_batch_size=4",
                      "ranks=3 context_parallel_strategy=all_gather opt_type=sgd dtype=float32 "
                      "lr_schedule_type=wsd"),
    [](const auto& c) { return fmt::format("case_{}", c.index); });

using ResumeElsewhere = Resume;

// From the checkpoint of one mesh on another: the same numbers within rounding.
TEST_P(ResumeElsewhere, OnOtherRanks) {
  Train("straight", 10, "ranks=2 dtype=float32");
  Train("moved", 5, "ranks=2 dtype=float32");
  Train("moved", 10, "dtype=float32 resume=auto " + GetParam());
  const auto straight = testing::ReadMetrics(Run("straight")), moved = testing::ReadMetrics(Run("moved"));
  ASSERT_EQ(moved.size(), straight.size());
  for (size_t i = 0; i < straight.size(); ++i) {
    EXPECT_NEAR(moved[i]["loss"].get<double>() / straight[i]["loss"].get<double>(), 1, 1e-5)
        << "step " << i + 1;
    EXPECT_NEAR(moved[i]["grad_norm"].get<double>() / straight[i]["grad_norm"].get<double>(), 1, 1e-3)
        << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ResumeElsewhere,
                         ::testing::Values("ranks=1", "ranks=3", "ranks=4 context_parallel_strategy=ulysses"),
                         [](const auto& c) { return fmt::format("case_{}", c.index); });

// A run with another sequence length goes on where the reader stood.
TEST_F(ResumeTest, AtAnotherLength) {
  Train("longer", 5, "");
  const ProgramResult run =
      RunProgram(fmt::format("train {}/config.yml resume=auto steps=6 max_target_length=512", Run("longer")));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(testing::ReadMetrics(Run("longer")).size(), 6u);
}

}  // namespace
}  // namespace longspan
