// verify tells rounding from what is wrong.
#include "eval/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/hosts.h"
#include "comm/thread_comm.h"
#include "model/params.h"
#include "support/fake_corpus.h"
#include "support/runs.h"
#include "support/tiny.h"

namespace longspan {
namespace {

struct Ranks {
  int64_t ranks, data;
  std::string strategy;
  bool sharded = false;
};
const Ranks kMeshes[] = {{4, 1, "ring"},      {3, 1, "all_gather"}, {4, 2, "ulysses"},
                         {4, 1, "usp", true}, {4, 2, "ring", true}, {2, 2, "ring"}};

TrainConfig Config(const Ranks& ranks, const std::string& dtype) {
  TrainConfig config;
  config.run_name = "a";
  config.dtype = dtype;
  config.threads_per_rank = 1;
  config.max_target_length = 45;
  config.global_batch_size = 4;
  config.learning_rate = 1e-2;
  config.ranks = ranks.ranks;
  config.data_parallelism = ranks.data;
  config.shard_parameters = ranks.sharded;
  config.context_parallel_strategy = {{"", ranks.strategy}};
  return config;
}

Job MakeJob(const TrainConfig& config, const ModelConfig& model) {
  const CounterRandom random(3, "documents");
  uint64_t index = 0;
  std::vector<testing::Ids> documents;
  for (const int length : {40, 3, 21, 60, 17, 9, 33, 45, 12, 28}) {
    documents.emplace_back();
    for (int i = 0; i < length; ++i)
      documents.back().push_back(
          static_cast<int32_t>(random.Below(static_cast<uint64_t>(model.vocab_size), index++)));
  }
  return PrepareJob(config, model, std::make_unique<testing::FakeCorpus>(documents));
}

Verification Verify(const TrainConfig& config, const ModelConfig& model) {
  const Job mesh = MakeJob(config, model);
  TrainConfig alone = OnOneRank(mesh.config);
  alone.threads_per_rank = 1;
  return VerifyStep(MakeJob(alone, model), mesh, "");
}

TEST(Verify, MeshesThatAreRightPass) {
  for (const testing::NamedConfig& family : testing::TinyFamilies()) {
    if (family.name != "llama" && family.name != "biases" && family.name != "gemma3") continue;
    for (const std::string dtype : {"float32", "bfloat16"}) {
      for (const Ranks& ranks : kMeshes) {
        SCOPED_TRACE(fmt::format("{}, {}, {} on {} ranks, {} data, sharded {}", family.name, dtype,
                                 ranks.strategy, ranks.ranks, ranks.data, ranks.sharded));
        const Verification v = Verify(Config(ranks, dtype), family.config);
        EXPECT_TRUE(v.passed()) << VerifyTable(MakeJob(Config(ranks, dtype), family.config), v);
        EXPECT_EQ(v.step, 1);
        EXPECT_GT(v.loss[0], 1);
        EXPECT_GT(v.grad_norm[0], 0);
        EXPECT_GT(v.differences.gradient, 0) << "sums are made in another order";
        EXPECT_LT(v.tolerances.weights, 0.2);
        size_t num_parameters = 0;
        for (const ParamUnit& unit : MakeParamTable(family.config).units) num_parameters += unit.rows.size();
        EXPECT_EQ(v.tensors.size(), num_parameters);
      }
    }
  }
}

// One rank beside itself differs by nothing.
TEST(Verify, OneRankEqualsItself) {
  TrainConfig config = Config({1, 1, "ring"}, "bfloat16");
  config.context_parallel_layout = "contiguous";
  const Verification v = Verify(config, testing::TinyConfig());
  EXPECT_TRUE(v.passed());
  for (const double difference :
       {v.differences.loss, v.differences.grad_norm, v.differences.gradient, v.differences.weights})
    EXPECT_EQ(difference, 0);
}

// Ranks that are processes, with a job each: the first gets what ranks of one process get.
TEST(Verify, RanksWithJobsOfTheirOwnFindTheSame) {
  const ModelConfig model = testing::TinyConfig();
  for (const bool is_right : {true, false}) {
    SCOPED_TRACE(is_right);
    TrainConfig config = Config({4, 2, "ring", true}, "float32");
    TrainConfig alone = OnOneRank(MakeJob(config, model).config);
    alone.threads_per_rank = 1;
    if (!is_right) config.learning_rate *= 2;
    const Job one_rank = MakeJob(alone, model);
    const Verification wanted = VerifyStep(one_rank, MakeJob(config, model), "");
    EXPECT_EQ(wanted.passed(), is_right);
    RunThreadRanks(4, [&](Comm& world) {
      const Job mesh = MakeJob(config, model);
      const bool is_first = world.rank() == 0;
      const std::optional<Verification> got =
          VerifyRankStep(is_first ? &one_rank : nullptr, mesh, "", world, FindHosts(world));
      ASSERT_EQ(got.has_value(), is_first);
      if (is_first) {
        EXPECT_EQ(VerifyJson(mesh, *got), VerifyJson(mesh, wanted));
      }
    });
  }
}

// The mesh is right, but does something else: whatever that is shows where it should.
TEST(Verify, WhatIsWrongDoesNotPass) {
  const ModelConfig model = testing::TinyConfig();
  const Ranks ranks = {4, 1, "ring"};
  for (const std::string dtype : {"float32", "bfloat16"}) {
    SCOPED_TRACE(dtype);
    const TrainConfig config = Config(ranks, dtype);
    const auto verify = [&](const TrainConfig& wrong) {
      TrainConfig alone = OnOneRank(MakeJob(config, model).config);
      alone.threads_per_rank = 1;
      return VerifyStep(MakeJob(alone, model), MakeJob(wrong, model), "");
    };
    EXPECT_TRUE(verify(config).passed());

    TrainConfig wrong = config;
    wrong.learning_rate *= 2;
    Verification v = verify(wrong);
    EXPECT_FALSE(v.passed());
    EXPECT_LE(v.differences.gradient, v.tolerances.gradient);
    EXPECT_GT(v.differences.weights, v.tolerances.weights);

    wrong = config;
    wrong.attention_mask = "sliding_window";
    wrong.sliding_window_size = 30;
    v = verify(wrong);
    EXPECT_FALSE(v.passed());
    EXPECT_GT(v.differences.gradient, v.tolerances.gradient);

    wrong = config;
    wrong.data_shuffle_seed = 5;
    v = verify(wrong);
    EXPECT_FALSE(v.passed());
    EXPECT_GT(v.differences.loss, v.tolerances.loss);
    EXPECT_GT(v.differences.grad_norm, v.tolerances.grad_norm);
    const Job mesh = MakeJob(wrong, model);
    EXPECT_NE(VerifyTable(mesh, v).find("exceeded"), std::string::npos);
    EXPECT_NE(VerifyTable(mesh, v).find("verdict: different"), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(VerifyJson(mesh, v))["equal"], false);
  }
}

TEST(Verify, TheTableNamesTheWorstAndJsonAll) {
  const TrainConfig config = Config({4, 1, "usp"}, "float32");
  const Job mesh = MakeJob(config, testing::TinyConfig());
  const Verification v = Verify(config, testing::TinyConfig());
  const auto worst = std::ranges::max_element(v.tensors, {}, &TensorDifference::gradient);
  EXPECT_EQ(worst->gradient, v.differences.gradient);
  const std::string table = VerifyTable(mesh, v);
  for (const std::string& text :
       {worst->name, std::string("ring 2 × ulysses 2; strategy usp"), std::string("verdict: equal")})
    EXPECT_NE(table.find(text), table.npos) << table << "\nlacks " << text;
  const nlohmann::json json = nlohmann::json::parse(VerifyJson(mesh, v));
  EXPECT_EQ(json["equal"], true);
  EXPECT_EQ(json["ranks"], 4);
  EXPECT_EQ(json["tensors"].size(), v.tensors.size());
  EXPECT_EQ(json["one_rank"]["loss"], v.loss[0]);
  EXPECT_EQ(json["mesh"]["grad_norm"], v.grad_norm[1]);
  EXPECT_EQ(json["differences"]["gradient"], v.differences.gradient);
  EXPECT_EQ(json["tolerances"]["weights"], v.tolerances.weights);
}

}  // namespace
}  // namespace longspan
