#include "plan/auto.h"

#include <gtest/gtest.h>

#include <set>

#include "plan/search.h"
#include "support/expect_error.h"
#include "support/small_machine.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::SmallMachine;

TrainConfig Config(const std::string& model, int64_t length, int64_t ranks) {
  TrainConfig config;
  config.model_path = model;
  config.max_target_length = length;
  config.ranks = ranks;
  return config;
}

TrainConfig AutoStrategy(TrainConfig config) {
  config.context_parallel_strategy = {{"", "auto"}};
  return config;
}

AutoChoice Choose(const TrainConfig& config, const Hardware& hardware) {
  return ChooseAuto(OpenModelAlone(config), FitOn(hardware), &hardware);
}

TEST(AutoTest, NothingIsChosenUnasked) {
  const TrainConfig config = Config("tiny", 4096, 2);
  const AutoChoice choice = ChooseAuto(OpenModelAlone(config), FitOn(SmallMachine(1)), nullptr);
  EXPECT_TRUE(choice.empty());
  EXPECT_EQ(AutoText(choice), "");
  EXPECT_EQ(choice.config.remat_policy, config.remat_policy);
  EXPECT_EQ(choice.config.context_parallel_strategy, config.context_parallel_strategy);
}

// The rung that is chosen fits, and none before it does: by the plan of each.
TEST(AutoTest, ThePolicyIsTheFirstThatFits) {
  const Hardware hardware = SmallMachine(16);
  TrainConfig config = Config("tiny-4-layers", 1 << 18, 2);
  config.remat_policy = "auto";
  const AutoChoice all = Choose(config, hardware);
  ASSERT_EQ(all.rungs.tried.size(), MemoryLadder().size());
  EXPECT_EQ(all.rungs.chosen, 0u);
  for (size_t wanted = 0; all.rungs.tried[wanted].rung->name != "input"; ++wanted) {
    config.device_memory_limit = std::to_string(all.rungs.tried[wanted].fit.device_bytes);
    const AutoChoice choice = Choose(config, hardware);
    EXPECT_EQ(choice.rungs.chosen, wanted);
    for (size_t i = 0; i <= wanted; ++i) {
      const auto& [rung, fit] = choice.rungs.tried[i];
      const Plan plan = MakePlan(PrepareJobWithoutText(OpenModelAlone(WithRung(config, *rung))), hardware);
      EXPECT_EQ(plan.fits, i == wanted) << rung->name;
      EXPECT_EQ(plan.fits, fit.fits()) << rung->name;
      EXPECT_EQ(plan.device_memory_bytes, fit.device_bytes) << rung->name;
    }
    const std::string text = AutoText(choice);
    EXPECT_NE(text.find("chosen: " + choice.rungs.rung().Keys()), std::string::npos) << text;
    EXPECT_EQ(choice.config.remat_policy, choice.rungs.rung().remat_policy);
  }
}

TEST(AutoTest, TheStrategyIsTheFastestOfTheSearch) {
  for (const int64_t length : {4096, 1 << 18}) {
    TrainConfig config = Config("llama3.2-1b", length, 8);
    config.global_batch_size = 8;
    config.remat_policy = "auto";
    const Hardware hardware = SmallMachine(40);
    const AutoChoice choice = Choose(AutoStrategy(config), hardware);
    ASSERT_FALSE(choice.candidates.empty());
    const Candidate& best = choice.candidates.front();
    const Job job = PrepareJobWithoutText(OpenModelAlone(choice.config));
    EXPECT_EQ(job.mesh, best.split.mesh);
    EXPECT_EQ(job.config.shard_parameters, best.split.shard_parameters);
    EXPECT_EQ(job.config.global_batch_size, 8);
    EXPECT_EQ(choice.rungs.rung().name, best.rung->name);
    EXPECT_EQ(MakePlan(job, hardware).step_seconds, best.plan.step_seconds);

    // Each split with the rung that the ladder says; of those the search has none that is faster.
    const SearchResult search = SearchPlans(OpenModelAlone(config), hardware);
    for (const Candidate& found : search.candidates) {
      const auto same = std::ranges::find_if(choice.candidates, [&](const Candidate& c) {
        return c.split.Keys() == found.split.Keys() && c.rung == found.rung;
      });
      if (same == choice.candidates.end()) continue;
      EXPECT_EQ(same->memory.fits(), found.memory.fits());
      EXPECT_EQ(same->plan.step_seconds, found.plan.step_seconds);
      if (!found.memory.fits()) continue;
      EXPECT_GE(found.plan.step_seconds, best.plan.step_seconds);
    }
  }
}

// With nothing said of its size a step is one sequence, whatever would be faster by the token.
TEST(AutoTest, AStepIsWhatItWouldBe) {
  const Hardware hardware = SmallMachine(16);
  const AutoChoice one = Choose(AutoStrategy(Config("tiny", 4096, 8)), hardware);
  for (const Candidate& c : one.candidates) EXPECT_EQ(c.split.mesh.groups(), 1);
  EXPECT_EQ(one.config.global_batch_size, 1);

  TrainConfig config = Config("tiny", 4096, 8);
  config.global_batch_size = 2;
  std::set<int> groups;
  for (const Candidate& c : Choose(AutoStrategy(config), hardware).candidates)
    groups.insert(c.split.mesh.groups());
  EXPECT_EQ(groups, (std::set<int>{1, 2}));
}

TEST(AutoTest, SizesThatAreGivenAreKept) {
  const Hardware hardware = SmallMachine(16);
  TrainConfig config = AutoStrategy(Config("tiny", 4096, 8));
  config.fsdp_parallelism = 2;
  const AutoChoice choice = Choose(config, hardware);
  EXPECT_EQ(choice.config.global_batch_size, 2);
  for (const Candidate& c : choice.candidates) {
    EXPECT_EQ(c.split.mesh.fsdp, 2);
    EXPECT_TRUE(c.split.shard_parameters);
  }
  config.fsdp_parallelism = 1;
  config.ulysses_parallelism = 2;
  for (const Candidate& c : Choose(config, hardware).candidates) EXPECT_EQ(c.split.mesh.ulysses, 2);
  config.ulysses_parallelism = 3;
  ExpectError(
      {"nothing to choose from", "ulysses_parallelism 3", "8 ranks"}, [&] { Choose(config, hardware); },
      ExitCode::kUsage);
}

TEST(AutoTest, WhatAutoChoosesIsNotGivenBesideIt) {
  TrainConfig config = Config("tiny", 4096, 2);
  config.remat_policy = "auto";
  config.context = "offload";
  ExpectError(
      {"context is offload", "remat_policy is auto"}, [&] { Choose(config, SmallMachine(1)); },
      ExitCode::kUsage);
  config = Config("tiny", 4096, 2);
  config.context_parallel_strategy = {{"full_attention", "auto"}, {"sliding_attention", "ring"}};
  ExpectError(
      {"context_parallel_strategy", "alone"}, [&] { Choose(config, SmallMachine(1)); }, ExitCode::kUsage);
}

// Nothing fits: the least is taken, and the plan, or the run, says what it lacks.
TEST(AutoTest, WhatDoesNotFitIsChosenAsWellAsCanBe) {
  TrainConfig config = AutoStrategy(Config("llama3.2-1b", 1 << 18, 4));
  config.remat_policy = "auto";
  const Hardware hardware = SmallMachine(0.5);
  const AutoChoice choice = Choose(config, hardware);
  EXPECT_FALSE(choice.candidates.front().memory.fits());
  EXPECT_TRUE(choice.config.shard_parameters);
  for (const Candidate& c : choice.candidates)
    EXPECT_GE(c.memory.device_bytes, choice.candidates.front().memory.device_bytes);
  EXPECT_NE(AutoText(choice).find("none fits"), std::string::npos);
}

}  // namespace
}  // namespace longspan
