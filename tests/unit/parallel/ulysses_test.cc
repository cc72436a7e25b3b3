#include "parallel/ulysses.h"

#include <gtest/gtest.h>

#include "parallel/strategy.h"

namespace longspan {
namespace {

std::vector<int32_t> GroupedHeads(int64_t heads, int64_t kv_heads) {
  std::vector<int32_t> kv_of;
  for (int64_t h = 0; h < heads; ++h) kv_of.push_back(static_cast<int32_t>(h * kv_heads / heads));
  return kv_of;
}

TEST(DealHeads, EightQueryTwoKvHeadsOverFour) {
  const std::vector<HeadShare> shares = DealHeads(GroupedHeads(8, 2), 4);
  for (int64_t r = 0; r < 4; ++r) {
    const HeadShare& share = shares[static_cast<size_t>(r)];
    EXPECT_EQ(share.query_heads, (Range{2 * r, 2 * r + 2}));
    EXPECT_EQ(share.kv_heads, (Range{r / 2, r / 2 + 1}));
    EXPECT_EQ(share.kv_of, (std::vector<int32_t>{0, 0}));
  }
}

// Equal counts, different maps.
TEST(DealHeads, TwelveQueryFourKvHeadsOverSix) {
  const std::vector<HeadShare> shares = DealHeads(GroupedHeads(12, 4), 6);
  EXPECT_EQ(shares[0].kv_of, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(shares[0].kv_heads, (Range{0, 1}));
  EXPECT_EQ(shares[1].kv_of, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(shares[1].kv_heads, (Range{0, 2}));
}

TEST(DealHeads, EveryQueryHeadOnceEveryKvHeadWhereItIsUsed) {
  for (const auto& [heads, kv_heads] : {std::pair{8, 2}, {8, 1}, {8, 8}, {12, 4}, {14, 2}}) {
    const std::vector<int32_t> kv_of = GroupedHeads(heads, kv_heads);
    for (int ranks = 1; ranks <= heads; ++ranks) {
      int64_t next = 0, kv_copies = 0;
      for (const HeadShare& share : DealHeads(kv_of, ranks)) {
        ASSERT_EQ(share.query_heads.begin, next);
        next = share.query_heads.end;
        // Uneven by at most one.
        ASSERT_GE(share.query_heads.size(), heads / ranks);
        ASSERT_LE(share.query_heads.size(), (heads + ranks - 1) / ranks);
        kv_copies += share.kv_heads.size();
        for (int64_t h = share.query_heads.begin; h < share.query_heads.end; ++h)
          ASSERT_EQ(share.kv_heads.begin + share.kv_of[static_cast<size_t>(h - share.query_heads.begin)],
                    kv_of[static_cast<size_t>(h)]);
      }
      ASSERT_EQ(next, heads);
      ASSERT_GE(kv_copies, kv_heads);
      ASSERT_LE(kv_copies, kv_heads + ranks - 1);
    }
  }
}

TEST(DealHeads, MoreRanksThanHeadsIsABug) {
  EXPECT_THROW(DealHeads(GroupedHeads(8, 2), 9), std::logic_error);
}

TEST(StrategyTable, NamesTheFourAndSuggestsTheNearest) {
  std::vector<std::string_view> names;
  for (const StrategyRow& row : StrategyTable()) names.push_back(row.name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"all_gather", "ring", "ulysses", "usp"}));
  for (const std::string_view name : names) EXPECT_EQ(FindStrategy(name).name, name);
  try {
    FindStrategy("ulyses");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("ulysses"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace longspan
