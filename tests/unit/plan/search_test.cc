#include "plan/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/check.h"
#include "plan/frontier.h"
#include "support/small_machine.h"

namespace longspan {
namespace {

using testing::SmallMachine;

TrainConfig Config(int64_t length, int64_t ranks) {
  TrainConfig config;
  config.model_path = "tiny";
  config.max_target_length = length;
  config.ranks = ranks;
  return config;
}

SearchResult Search(const TrainConfig& config, const Hardware& hardware) {
  return SearchPlans(OpenModelAlone(config), hardware);
}

TEST(SearchTest, PlansEverySplitAndSortsThem) {
  const SearchResult result = Search(Config(16384, 8), SmallMachine(16));
  std::set<std::string> splits, sharded;
  for (const Candidate& c : result.candidates) {
    const MeshShape& mesh = c.split.mesh;
    EXPECT_EQ(mesh.ranks(), 8);
    EXPECT_FALSE(c.verdict.empty());
    splits.insert(fmt::format("{} {}x{}x{}", c.split.strategy, mesh.groups(), mesh.ring, mesh.ulysses));
    if (c.split.shard_parameters)
      sharded.insert(
          fmt::format("{} {}x{}x{}x{}", c.split.strategy, mesh.data, mesh.fsdp, mesh.ring, mesh.ulysses));
  }
  // Four heads: ulysses up to 4, usp where both sides are at least 2.
  for (const char* split : {"none 8x1x1", "ring 4x2x1", "ring 1x8x1", "all_gather 2x4x1", "ulysses 2x1x4",
                            "usp 2x2x2", "usp 1x4x2", "usp 1x2x4"})
    EXPECT_TRUE(splits.contains(split)) << split;
  EXPECT_FALSE(splits.contains("ulysses 1x1x8"));
  EXPECT_EQ(splits.size(), 1u + 3 + 4 + 4);  // of 1, 2, 4 and 8 ranks a sequence
  // Over any part of the groups, which are 8, 4, 2 and 1; alone nobody shares.
  for (const char* split : {"none 1x8x1x1", "none 4x2x1x1", "ring 4x1x2x1", "ring 2x2x2x1", "usp 1x2x2x2"})
    EXPECT_TRUE(sharded.contains(split)) << split;
  EXPECT_FALSE(sharded.contains("none 8x1x1x1"));
  EXPECT_EQ(sharded.size(), 3u + 3 * 3 + 4 * 2 + 4 * 1);
  EXPECT_EQ(result.candidates.size(), MemoryLadder().size() * (splits.size() + sharded.size()));
  EXPECT_EQ(result.smallest_context, 1);
  EXPECT_EQ(result.candidates.front().verdict, "the fastest");
  EXPECT_EQ(RowOf(result.candidates.front()).size(), CandidateHeader().size());
  for (size_t i = 1; i < result.candidates.size(); ++i)
    EXPECT_LE(result.candidates[i].plan.tokens_per_second_per_device,
              result.candidates[i - 1].plan.tokens_per_second_per_device);
}

// What does not fit on few ranks fits on more; a fixed number of sequences rules out groups that don't divide
// it.
TEST(SearchTest, FindsTheSmallestDegreeThatFits) {
  TrainConfig config = Config(1 << 20, 8);
  const SearchResult result = Search(config, SmallMachine(0.8));
  EXPECT_TRUE(result.any_fits());
  EXPECT_GT(result.smallest_context, 1);
  for (const Candidate& c : result.candidates)
    if (c.split.mesh.context() < result.smallest_context) {
      EXPECT_FALSE(c.memory.fits());
      EXPECT_NE(c.verdict.find("memory"), std::string::npos);
    }
  const SearchResult nothing = Search(config, SmallMachine(0.001));
  EXPECT_FALSE(nothing.any_fits());
  EXPECT_NE(SearchTable(nothing).find("Nothing fits"), std::string::npos);

  config.global_batch_size = 2;
  for (const Candidate& c : Search(config, SmallMachine(16)).candidates) EXPECT_LE(c.split.mesh.groups(), 2);
}

// A limit below the machine's memory is what counts.
TEST(SearchTest, KeepsToTheLimit) {
  TrainConfig config = Config(1 << 20, 8);
  config.device_memory_limit = "0.8GiB";
  const SearchResult limited = Search(config, SmallMachine(16));
  const SearchResult small = Search(Config(1 << 20, 8), SmallMachine(0.8));
  EXPECT_EQ(limited.smallest_context, small.smallest_context);
  EXPECT_EQ(limited.candidates.front().Keys(), small.candidates.front().Keys());
}

TEST(SearchTest, AFolderForWhatIsOffloadedGoesWithEveryRung) {
  TrainConfig config = Config(16384, 2);
  config.offload_directory = "/not/here";
  for (const Candidate& c : Search(config, SmallMachine(16)).candidates)
    EXPECT_EQ(c.config.offload_directory.empty(), c.Keys().find("offload") == std::string::npos) << c.Keys();
}

TEST(FrontierTest, MoreRanksReachFurther) {
  const Frontier frontier = FindFrontier(Config(4096, 6), 0, SmallMachine(0.25));
  ASSERT_EQ(frontier.reach.size(), 4u);  // 1, 2, 4, 6
  EXPECT_EQ(frontier.reach.back().ranks, 6);
  for (size_t i = 1; i < frontier.reach.size(); ++i)
    EXPECT_GT(frontier.reach[i].longest, frontier.reach[i - 1].longest);
  for (const Frontier::Reach& reach : frontier.reach)  // its plan fits, and none half as long again does
    for (const int64_t length : {reach.longest, reach.longest + reach.longest / 2}) {
      const auto rung = std::ranges::find(MemoryLadder(), reach.kept, &MemoryRung::name);
      ASSERT_NE(rung, MemoryLadder().end()) << reach.kept;
      TrainConfig config = WithRung(Config(length, reach.ranks), *rung);
      config.shard_parameters = reach.ranks > 1;
      config.context_parallel_strategy = {{"", reach.strategy}};
      const Plan plan = PlanMemory(PrepareJobWithoutText(OpenModel(config)), SmallMachine(0.25));
      EXPECT_EQ(plan.fits, length == reach.longest) << reach.ranks << " ranks, " << length;
    }
  ASSERT_FALSE(frontier.by_length.empty());
  EXPECT_EQ(frontier.by_length.front().config.max_target_length, 4096);
  for (const Candidate& c : frontier.by_length) EXPECT_TRUE(c.memory.fits());
  const std::string page = FrontierPage(Config(4096, 6), SmallMachine(0.25), frontier);
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);  // nothing is loaded from elsewhere
}

}  // namespace
}  // namespace longspan
