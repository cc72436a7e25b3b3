// What must hold of a training run, whatever ranks it runs on, and whether or not it was stopped on the way.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/file.h"
#include "support/files.h"
#include "support/model_ranks.h"
#include "support/runs.h"
#include "support/tiny.h"

namespace longspan {
namespace {

using nlohmann::json;
using Weights = std::map<std::string, std::vector<float>>;

struct RanksOfRun {
  int ranks, data;
  std::string strategy;
};
// (data, context) = (1, 1), (4, 1), (2, 2), (1, 4) and unequal ones.
const RanksOfRun kMeshes[] = {{1, 1, "ring"},    {4, 4, "ring"},       {4, 2, "ring"},
                              {4, 2, "ulysses"}, {4, 1, "all_gather"}, {4, 1, "usp"},
                              {2, 2, "ulysses"}, {2, 1, "ring"},       {6, 2, "all_gather"}};

// A run directory, model and data for one test.
class InvariantsOfTraining : public ::testing::Test {
 protected:
  InvariantsOfTraining() : model_(testing::TinyConfig()) {
    testing::WriteModel(directory_ / "model", model_, /*seed=*/7);
  }

  TrainConfig Config() const {
    return testing::PlainConfig(directory_ / "model", directory_ / "data.jsonl", directory_ / "runs");
  }

  // Plain SGD with rate 1: the weights' change is the gradient.
  TrainConfig GradientConfig() const {
    TrainConfig config = Config();
    config.steps = 1;
    config.opt_type = "sgd";
    config.learning_rate = 1;
    config.lr_schedule_type = "constant";
    config.warmup_steps_fraction = 0;
    config.gradient_clipping_threshold = 0;
    return config;
  }

  std::string Train(TrainConfig config, const RanksOfRun& mesh) {
    config.ranks = mesh.ranks;
    config.data_parallelism = mesh.data;
    config.context_parallel_strategy = {{"", mesh.strategy}};
    if (config.run_name.empty()) config.run_name = fmt::format("run{}", num_runs_++);
    return testing::TrainQuietly(config);
  }

  // Initial weights minus those of the run's last checkpoint.
  Weights Change(const std::string& run) const {
    Weights change = testing::ReadWeights(directory_ / "model");
    const Weights after = testing::LatestWeights(run);
    for (auto& [name, values] : change) {
      for (size_t i = 0; i < values.size(); ++i) values[i] -= after.at(name)[i];
    }
    return change;
  }

  testing::TemporaryDirectory directory_;
  const ModelConfig model_;

 private:
  int num_runs_ = 0;
};

// The weights are about 0.3 and their change smaller, so the change carries the rounding of the weights.
void ExpectSameChange(const Weights& got, const Weights& wanted) {
  for (const auto& [name, values] : wanted) {
    EXPECT_LT(testing::RelativeDifference(got.at(name), values), 3e-5) << name;
  }
}

void ExpectSameMetrics(const std::vector<json>& got, const std::vector<json>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    for (const char* key : {"loss", "grad_norm"}) {
      EXPECT_NEAR(got[i][key].get<double>() / wanted[i][key].get<double>(), 1, 1e-5)
          << key << " of line " << i;
    }
    EXPECT_EQ(got[i]["tokens"], wanted[i]["tokens"]);
    EXPECT_EQ(got[i]["step"], wanted[i]["step"]);
    EXPECT_EQ(got[i]["learning_rate"], wanted[i]["learning_rate"]);
  }
}

TEST_F(InvariantsOfTraining, GradientsAreTheSameOnEveryMesh) {
  testing::WriteDocuments(directory_ / "data.jsonl", {20, 31, 9, 40, 12, 12, 5, 33}, model_.vocab_size);
  TrainConfig config = GradientConfig();
  config.max_target_length = 45;
  config.global_batch_size = 4;

  // What one rank's model says of the same four sequences, without the trainer.
  const Job job = PrepareJob(config);
  MixtureReader reader = job.MakeReader();
  std::vector<Batch> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(reader.Next());
  const testing::ModelResult wanted =
      testing::RunModel(model_, testing::InitialWeights(model_, 7), testing::RanksSpec{}, batches);

  for (const RanksOfRun& mesh : kMeshes) {
    SCOPED_TRACE(fmt::format("{} on {} ranks, {} data", mesh.strategy, mesh.ranks, mesh.data));
    const std::string run = Train(config, mesh);
    ExpectSameChange(Change(run), wanted.gradients);
    // Replicated parameters count once in the norm.
    const std::vector<json> metrics = testing::ReadMetrics(run);
    ASSERT_EQ(metrics.size(), 1u);
    EXPECT_NEAR(metrics[0]["grad_norm"].get<double>() / wanted.grad_norm, 1, 1e-5);
    EXPECT_NEAR(metrics[0]["loss"].get<double>() / wanted.loss, 1, 1e-5);
  }
}

TEST_F(InvariantsOfTraining, MicroBatchesOfOneAndNineTargetsEqualOneBatch) {
  testing::WriteDocuments(directory_ / "data.jsonl", {2, 10}, model_.vocab_size);
  TrainConfig together = GradientConfig();
  together.max_target_length = 12;
  const std::string wanted = Train(together, kMeshes[0]);
  ASSERT_EQ(testing::ReadMetrics(wanted)[0]["tokens"], 12);

  TrainConfig apart = GradientConfig();
  apart.max_target_length = 10;
  apart.global_batch_size = 2;
  for (const RanksOfRun& mesh : {kMeshes[0], RanksOfRun{2, 2, "ring"}, RanksOfRun{2, 1, "ulysses"}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} data", mesh.ranks, mesh.data));
    const std::string got = Train(apart, mesh);
    ExpectSameMetrics(testing::ReadMetrics(got), testing::ReadMetrics(wanted));
    ExpectSameChange(Change(got), Change(wanted));
  }
}

TEST_F(InvariantsOfTraining, TheSequencesOfAStepDependOnSeedAndStepOnly) {
  testing::WriteDocuments(directory_ / "data.jsonl", {7, 20, 3, 11, 30, 16, 25, 9, 14, 28, 5, 19, 22},
                          model_.vocab_size);
  TrainConfig config = Config();
  config.max_target_length = 30;
  config.global_batch_size = 4;
  config.steps = 4;
  config.learning_rate = 0;
  config.enable_checkpointing = false;
  const std::vector<json> wanted = testing::ReadMetrics(Train(config, kMeshes[0]));
  ASSERT_EQ(wanted.size(), 4u);
  for (size_t i = 1; i < 4; ++i)
    EXPECT_NE(wanted[i]["loss"], wanted[0]["loss"]) << "other sequences, other loss";
  for (const RanksOfRun& mesh : kMeshes) {
    SCOPED_TRACE(fmt::format("{} on {} ranks, {} data", mesh.strategy, mesh.ranks, mesh.data));
    ExpectSameMetrics(testing::ReadMetrics(Train(config, mesh)), wanted);
  }
  config.data_shuffle_seed = 1;
  EXPECT_NE(testing::ReadMetrics(Train(config, kMeshes[0]))[0]["loss"], wanted[0]["loss"]);
}

// With every packing, and with data from two sources: groups of ranks share the same steps, and a run that
// was stopped within an epoch of each goes on with them.
TEST_F(InvariantsOfTraining, SequencesOfMixturesAreTheSameOnEveryMesh) {
  testing::WriteDocuments(directory_ / "a.jsonl", {7, 20, 3, 11, 80, 16, 25, 9, 14, 28, 5, 19, 22},
                          model_.vocab_size);
  testing::WriteDocuments(directory_ / "b.jsonl", {12, 33, 2, 8, 8, 17}, model_.vocab_size, /*seed=*/2);
  TrainConfig config = Config();
  config.data_path = {{directory_ / "a.jsonl", "2"}, {directory_ / "b.jsonl", "0.9"}};
  config.max_target_length = 30;
  config.global_batch_size = 4;
  config.steps = 4;
  config.checkpoint_period = 2;
  std::vector<json> of_best_fit;
  for (const PackingRow& packing : PackingTable()) {
    SCOPED_TRACE(packing.name);
    config.packing = packing.name;
    config.resume = "none";
    config.run_name.clear();
    const std::string straight = Train(config, kMeshes[0]);
    const std::vector<json> wanted = testing::ReadMetrics(straight);
    ASSERT_EQ(wanted.size(), 4u);
    for (const json& row : wanted)
      EXPECT_NEAR(row["padding"].get<double>(), 1 - row["tokens"].get<double>() / 120, 1e-12);
    if (packing.packing == Packing::kBestFit)
      of_best_fit = wanted;
    else
      EXPECT_NE(wanted[0]["loss"], of_best_fit.at(0)["loss"]);
    ExpectSameMetrics(testing::ReadMetrics(Train(config, {4, 2, "ulysses"})), wanted);
    ExpectSameMetrics(testing::ReadMetrics(Train(config, {4, 4, "ring"})), wanted);
    config.resume = straight + "/checkpoints/00000002";
    ExpectSameMetrics(testing::ReadMetrics(Train(config, {2, 2, "ring"})),
                      {wanted.begin() + 2, wanted.end()});
  }
}

// Lines of metrics.jsonl without what depends on the clock.
std::vector<std::string> TimelessLines(const std::string& run) {
  std::vector<std::string> lines;
  for (json row : testing::ReadMetrics(run)) {
    for (const char* key : {"step_seconds", "tokens_per_second", "tflops_per_second", "mfu", "hfu",
                            "communication_wait_seconds"}) {
      EXPECT_EQ(row.erase(key), 1u) << key;
    }
    lines.push_back(row.dump());
  }
  return lines;
}

// Every file of the last checkpoint, by name.
std::map<std::string, std::string> CheckpointFiles(const std::string& run) {
  std::map<std::string, std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(LatestCheckpoint(run + "/checkpoints"))) {
    files[file.path().filename()] = ReadTextFile(file.path());
  }
  return files;
}

TEST_F(InvariantsOfTraining, AStoppedRunGoesOnAsIfItHadNotStopped) {
  testing::WriteDocuments(directory_ / "data.jsonl", {7, 20, 3, 11, 70, 16, 25, 9, 14}, model_.vocab_size);
  testing::WriteDocuments(directory_ / "held_out.jsonl", {17, 29}, model_.vocab_size, /*seed=*/2);
  TrainConfig config = Config();
  config.eval_data_path = directory_ / "held_out.jsonl";
  config.eval_interval = 2;
  config.max_target_length = 30;
  config.global_batch_size = 2;
  config.learning_rate = 1e-2;
  config.warmup_steps_fraction = 0.3;
  config.gradient_clipping_threshold = 0.5;
  config.learning_rate_schedule_steps = 10;
  for (const std::string dtype : {"float32", "bfloat16"}) {
    for (const RanksOfRun& mesh :
         {RanksOfRun{1, 1, "ring"}, RanksOfRun{3, 1, "ring"}, RanksOfRun{4, 2, "ulysses"}}) {
      SCOPED_TRACE(fmt::format("{}, {} on {} ranks, {} data", dtype, mesh.strategy, mesh.ranks, mesh.data));
      config.dtype = dtype;
      config.resume = "none";
      config.steps = 10;
      config.run_name = fmt::format("straight-{}-{}", dtype, mesh.ranks);
      const std::string straight = Train(config, mesh);

      config.run_name = fmt::format("stopped-{}-{}", dtype, mesh.ranks);
      config.steps = 5;
      const std::string stopped = Train(config, mesh);
      ASSERT_EQ(testing::ReadMetrics(stopped).size(), 5u);
      config.steps = 10;
      config.resume = "auto";
      Train(config, mesh);
      EXPECT_EQ(TimelessLines(stopped), TimelessLines(straight));
      EXPECT_TRUE(CheckpointFiles(stopped) == CheckpointFiles(straight));
    }
  }
}

TEST_F(InvariantsOfTraining, AStoppedRunGoesOnOnOtherRanks) {
  testing::WriteDocuments(directory_ / "data.jsonl", {7, 20, 3, 11, 70, 16, 25, 9, 14}, model_.vocab_size);
  TrainConfig config = Config();
  config.max_target_length = 30;
  config.global_batch_size = 2;
  config.learning_rate = 1e-3;
  config.steps = 10;
  config.checkpoint_period = 5;
  const std::vector<json> wanted = testing::ReadMetrics(Train(config, {2, 1, "ring"}));
  config.resume = directory_ / "runs/run0/checkpoints/00000005";
  for (const RanksOfRun& mesh :
       {RanksOfRun{1, 1, "ring"}, RanksOfRun{3, 1, "ulysses"}, RanksOfRun{4, 2, "all_gather"}}) {
    SCOPED_TRACE(fmt::format("{} on {} ranks, {} data", mesh.strategy, mesh.ranks, mesh.data));
    const std::vector<json> got = testing::ReadMetrics(Train(config, mesh));
    ExpectSameMetrics(got, {wanted.begin() + 5, wanted.end()});
  }
}

TEST_F(InvariantsOfTraining, TokensAreCountedOnceOnEveryMesh) {
  ModelConfig model = model_;  // as small as a model can be
  model.vocab_size = 4;
  model.SetNumLayers(1);
  model.hidden_size = model.intermediate_size = model.head_dim = 2;
  model.attention_scale = 1 / std::sqrt(2.0);
  model.num_attention_heads = model.num_key_value_heads = 1;
  testing::WriteModel(directory_ / "small", model, 7);
  testing::WriteDocuments(directory_ / "data.jsonl", std::vector<int64_t>(32, 2048), model.vocab_size);
  TrainConfig config = Config();
  config.model_path = directory_ / "small";
  config.attention_mask = "sliding_window";
  config.sliding_window_size = 1;
  config.max_target_length = 2048;
  config.global_batch_size = 32;
  config.steps = 5;
  config.enable_checkpointing = false;
  for (const RanksOfRun& mesh : {RanksOfRun{1, 1, "ring"}, RanksOfRun{2, 2, "ring"}, RanksOfRun{2, 1, "ring"},
                                 RanksOfRun{4, 2, "all_gather"}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} data", mesh.ranks, mesh.data));
    int64_t tokens = 0;
    for (const json& row : testing::ReadMetrics(Train(config, mesh))) {
      tokens += row["tokens"].get<int64_t>();
      const double rate = row["tokens"].get<double>() / (row["step_seconds"].get<double>() * mesh.ranks);
      EXPECT_NEAR(row["tokens_per_second"].get<double>() / rate, 1, 1e-9);
    }
    EXPECT_EQ(tokens, 327680);
  }
}

}  // namespace
}  // namespace longspan
