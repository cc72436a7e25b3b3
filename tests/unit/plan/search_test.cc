#include "plan/search.h"

#include <gtest/gtest.h>

#include <set>

#include "core/check.h"
#include "plan/frontier.h"

namespace longspan {
namespace {

Hardware SmallMachine(double memory_gib) {
  Hardware hardware;
  hardware.hardware_name = "machine";
  hardware.device_memory_gib = memory_gib;
  hardware.host_memory_gib = 64;
  hardware.peak_tflops_bfloat16 = hardware.peak_tflops_float32 = 100;
  hardware.memory_gbps = 1000;
  hardware.link_gbps = 100;
  hardware.island_ranks = 4;
  hardware.network_gbps = 10;
  hardware.host_gbps = 20;
  hardware.disk_gbps = 1;
  return hardware;
}

TrainConfig Config(int64_t length, int64_t ranks) {
  TrainConfig config;
  config.model_path = "tiny";
  config.max_target_length = length;
  config.ranks = ranks;
  return config;
}

TEST(SearchTest, PlansEverySplitAndSortsThem) {
  const SearchResult result = SearchPlans(Config(16384, 8), 0, SmallMachine(16));
  std::set<std::string> splits;
  for (const Candidate& c : result.candidates) {
    EXPECT_EQ(c.mesh.ranks(), 8);
    EXPECT_FALSE(c.verdict.empty());
    splits.insert(fmt::format("{} {}x{}x{}", c.strategy, c.mesh.groups(), c.mesh.ring, c.mesh.ulysses));
  }
  // Four heads: ulysses up to 4, usp where both sides are at least 2.
  for (const char* split : {"none 8x1x1", "ring 4x2x1", "ring 1x8x1", "all_gather 2x4x1", "ulysses 2x1x4",
                            "usp 2x2x2", "usp 1x4x2", "usp 1x2x4"})
    EXPECT_TRUE(splits.contains(split)) << split;
  EXPECT_FALSE(splits.contains("ulysses 1x1x8"));
  EXPECT_EQ(splits.size(), 1u + 3 + 4 + 4);  // of 1, 2, 4 and 8 ranks a sequence
  EXPECT_EQ(result.candidates.size(), 2 * 7 * splits.size());
  EXPECT_EQ(result.smallest_context, 1);
  EXPECT_EQ(result.candidates.front().verdict, "the fastest");
  for (size_t i = 1; i < result.candidates.size(); ++i)
    EXPECT_LE(result.candidates[i].plan.tokens_per_second_per_device,
              result.candidates[i - 1].plan.tokens_per_second_per_device);
}

// What does not fit on few ranks fits on more; a fixed number of sequences rules out groups that don't divide
// it.
TEST(SearchTest, FindsTheSmallestDegreeThatFits) {
  TrainConfig config = Config(1 << 20, 8);
  const SearchResult result = SearchPlans(config, 0, SmallMachine(0.8));
  EXPECT_TRUE(result.any_fits());
  EXPECT_GT(result.smallest_context, 1);
  for (const Candidate& c : result.candidates)
    if (c.mesh.context() < result.smallest_context) {
      EXPECT_FALSE(c.plan.fits);
      EXPECT_NE(c.verdict.find("memory"), std::string::npos);
    }
  const SearchResult nothing = SearchPlans(config, 0, SmallMachine(0.001));
  EXPECT_FALSE(nothing.any_fits());
  EXPECT_NE(SearchTable(nothing).find("Nothing fits"), std::string::npos);

  config.global_batch_size = 2;
  for (const Candidate& c : SearchPlans(config, 0, SmallMachine(16)).candidates)
    EXPECT_LE(c.mesh.groups(), 2);
}

TEST(FrontierTest, MoreRanksReachFurther) {
  const Frontier frontier = FindFrontier(Config(4096, 6), 0, SmallMachine(0.25));
  ASSERT_EQ(frontier.reach.size(), 4u);  // 1, 2, 4, 6
  EXPECT_EQ(frontier.reach.back().ranks, 6);
  for (size_t i = 1; i < frontier.reach.size(); ++i)
    EXPECT_GT(frontier.reach[i].longest, frontier.reach[i - 1].longest);
  ASSERT_FALSE(frontier.by_length.empty());
  EXPECT_EQ(frontier.by_length.front().config.max_target_length, 4096);
  for (const Candidate& c : frontier.by_length) EXPECT_TRUE(c.plan.fits);
  const std::string page = FrontierPage(Config(4096, 6), SmallMachine(0.25), frontier);
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);  // nothing is loaded from elsewhere
}

}  // namespace
}  // namespace longspan
