#include "core/format.h"

#include <gtest/gtest.h>

namespace longspan {
namespace {

TEST(Format, Numbers) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Plural(1, "rank"), "1 rank");
  EXPECT_EQ(Plural(0, "rank"), "0 ranks");
  EXPECT_EQ(Plural(4096, "rank"), "4,096 ranks");
  EXPECT_EQ(Percent(0.125), "12.5 %");
  EXPECT_EQ(Percent(0.00125, 2), "0.12 %");
}

}  // namespace
}  // namespace longspan
