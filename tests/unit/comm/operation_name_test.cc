#include "comm/operation_name.h"

#include <gtest/gtest.h>

namespace longspan {
namespace {

TEST(OperationName, Ranks) {
  EXPECT_EQ(RanksText({2}), "rank 2");
  EXPECT_EQ(RanksText({3, 2}), "ranks 2 and 3");
  EXPECT_EQ(RanksText({0, 1, 2, 3}), "ranks 0–3");
  EXPECT_EQ(RanksText({0, 1, 2, 3, 6, 7}), "ranks 0–3, 6 and 7");
  EXPECT_EQ(RanksText({9, 1, 4, 5, 6, 8}), "ranks 1, 4–6, 8 and 9");
}

TEST(OperationName, SaysWhatAndWhen) {
  const auto ranks = std::make_shared<const std::vector<int>>(std::vector<int>{0, 1, 2, 3});
  EXPECT_EQ(Describe({WorkKind::kAllGather, ranks, -1, 12}), "all_gather of ranks 0–3 (step 12)");
  EXPECT_EQ(Describe({WorkKind::kReduceScatter, ranks, -1, 0}), "reduce_scatter of ranks 0–3");
  EXPECT_EQ(Describe({WorkKind::kSend, ranks, 3, 1}), "send to rank 3 (step 1)");
  EXPECT_EQ(Describe({WorkKind::kRecv, ranks, 2, 1}), "recv from rank 2 (step 1)");
}

}  // namespace
}  // namespace longspan
