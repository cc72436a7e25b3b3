// Runs with skip_step_on_spikes: which steps are skipped, what that leaves, and that neither ranks nor a stop
// matter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/file.h"
#include "support/files.h"
#include "support/runs.h"
#include "support/tiny.h"

namespace longspan {
namespace {

using nlohmann::json;

class SkippedSteps : public ::testing::Test {
 protected:
  SkippedSteps() {
    testing::WriteModel(directory_ / "model", model_, /*seed=*/7);
    testing::WriteDocuments(directory_ / "data.jsonl", {40, 40, 40, 7, 40, 12, 40, 40, 30, 5, 40, 40, 8},
                            model_.vocab_size);
  }

  // Anything above the mean is a spike, so that every other step is one.
  TrainConfig Config(const std::string& name) const {
    TrainConfig config =
        testing::PlainConfig(directory_ / "model", directory_ / "data.jsonl", directory_ / "runs");
    config.run_name = name;
    config.max_target_length = 40;
    config.steps = config.learning_rate_schedule_steps = 12;
    config.learning_rate = 1e-2;
    config.checkpoint_period = 1;
    config.skip_step_on_spikes = true;
    config.skip_step_interval = 6;
    config.skip_step_scaling_factor = 0;
    return config;
  }

  testing::TemporaryDirectory directory_;
  const ModelConfig model_ = testing::TinyConfig();
};

// The steps that the two numbers of each say are spikes, from 1.
std::vector<int64_t> Spikes(const std::vector<json>& metrics) {
  std::vector<int64_t> spikes;
  for (size_t i = 2; i < metrics.size(); ++i) {
    const size_t first = i < 6 ? 0 : i - 6;
    for (const char* name : {"loss", "grad_norm"}) {
      double sum = 0;
      for (size_t j = first; j < i; ++j) sum += metrics[j][name].get<double>();
      if (metrics[i][name].get<double>() <= sum / static_cast<double>(i - first)) continue;
      spikes.push_back(metrics[i]["step"]);
      break;
    }
  }
  return spikes;
}

std::vector<int64_t> Skipped(const std::vector<json>& metrics) {
  std::vector<int64_t> steps;
  for (const json& row : metrics)
    if (row.contains("skipped")) steps.push_back(row["step"]);
  return steps;
}

TEST_F(SkippedSteps, AreThoseAboveTheRestAndLeaveEverything) {
  const std::string run = testing::TrainQuietly(Config("a"));
  const std::vector<json> metrics = testing::ReadMetrics(run);
  const std::vector<int64_t> skipped = Skipped(metrics);
  EXPECT_EQ(skipped, Spikes(metrics));
  EXPECT_GE(skipped.size(), 2u);
  EXPECT_LE(skipped.size(), 9u);
  for (int64_t step = 2; step <= 12; ++step) {
    const std::string before = fmt::format("{}/checkpoints/{:08}/", run, step - 1),
                      after = fmt::format("{}/checkpoints/{:08}/", run, step);
    const bool is_skipped = std::ranges::count(skipped, step) > 0;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(ReadTextFile(before + file) == ReadTextFile(after + file), is_skipped) << step << " " << file;
    const auto updates = [](const std::string& checkpoint) {
      return json::parse(ReadTextFile(checkpoint + "state.json"))["optimizer_step"].get<int64_t>();
    };
    EXPECT_EQ(updates(after) - updates(before), is_skipped ? 0 : 1) << step;
  }
}

TEST_F(SkippedSteps, AreTheSameOnEveryMeshAndAfterAStop) {
  for (const auto& [ranks, data, sharded] :
       {std::tuple(1, 1, false), std::tuple(3, 1, false), std::tuple(4, 2, true)}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} data", ranks, data));
    TrainConfig config = Config(fmt::format("straight-{}", ranks));
    config.ranks = ranks;
    config.data_parallelism = data;
    config.shard_parameters = sharded;
    config.global_batch_size = 2;
    const std::string straight = testing::TrainQuietly(config);
    EXPECT_EQ(Skipped(testing::ReadMetrics(straight)), Spikes(testing::ReadMetrics(straight)));
    config.run_name = fmt::format("stopped-{}", ranks);
    config.steps = 7;
    testing::TrainQuietly(config);
    config.steps = 12;
    config.resume = "auto";
    testing::ExpectSameRun(testing::TrainQuietly(config), straight);
  }
}

// A checkpoint of a run that didn't look for spikes says nothing of them.
TEST_F(SkippedSteps, MayBeginLater) {
  TrainConfig config = Config("a");
  config.skip_step_on_spikes = false;
  config.steps = 5;
  const std::string run = testing::TrainQuietly(config);
  EXPECT_FALSE(json::parse(ReadTextFile(run + "/checkpoints/00000005/state.json")).contains("recent_steps"));
  config.skip_step_on_spikes = true;
  config.steps = 12;
  config.resume = "auto";
  testing::TrainQuietly(config);
  std::vector<json> metrics = testing::ReadMetrics(run);
  ASSERT_EQ(metrics.size(), 12u);
  metrics.erase(metrics.begin(), metrics.begin() + 5);
  EXPECT_EQ(Skipped(metrics), Spikes(metrics));
}

}  // namespace
}  // namespace longspan
