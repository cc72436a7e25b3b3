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

TEST(Format, Bytes) {
  EXPECT_EQ(FormatBytes(640), "640 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(int64_t{24} << 30), "24.0 GiB");
  EXPECT_EQ(FormatBytes(int64_t{300} << 40), "300 TiB");
}

TEST(Format, BytesAreRead) {
  EXPECT_EQ(ParseBytes("24GiB"), int64_t{24} << 30);
  EXPECT_EQ(ParseBytes("80GB"), 80'000'000'000);
  EXPECT_EQ(ParseBytes("512MiB"), 512 << 20);
  EXPECT_EQ(ParseBytes("1.5TiB"), int64_t{3} << 39);
  EXPECT_EQ(ParseBytes("16 KiB"), 16384);
  EXPECT_EQ(ParseBytes("7KB"), 7000);
  EXPECT_EQ(ParseBytes("123456789012"), 123456789012);
  EXPECT_EQ(ParseBytes("5B"), 5);
  for (const char* text : {"", "GiB", "-1GiB", "24Gib", "24GiBs", "24 GiB ", "1e30", "inf", "nan", "24,5GiB",
                           "0x10", "99999999999TiB", "two GiB"})
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
}

}  // namespace
}  // namespace longspan
