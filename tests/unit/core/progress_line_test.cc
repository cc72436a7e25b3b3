#include "core/progress_line.h"

#include <gtest/gtest.h>

#include "core/memory.h"

namespace longspan {
namespace {

TEST(ProgressLine, SaysHowFarHowFastHowLong) {
  EXPECT_EQ(ProgressText("reading a.txt", kMegabytes, 12500000, 50000000, 2),
            "reading a.txt: 12.5 of 50.0 MB, 6.2 MB/s, 0:06 left");
  EXPECT_EQ(ProgressText("t", kMegabytes, 1000000, 10000000000, 1),
            "t: 1.0 of 10000.0 MB, 1.0 MB/s, 2:46:39 left");
  EXPECT_EQ(ProgressText("t", kMegabytes, 0, 1000000, 5), "t: 0.0 of 1.0 MB, 0.0 MB/s");
  EXPECT_EQ(ProgressText("t", kMegabytes, 2000000, 1000000, 1),
            "t: 2.0 of 1.0 MB, 2.0 MB/s, 0:00 left");  // the file has grown
  EXPECT_EQ(ProgressText("evaluating t", kKiloTokens, 2048, 10240, 4),
            "evaluating t: 2.0 of 10.0 K tokens, 0.5 K tokens/s, 0:16 left");
}

TEST(Memory, SomeIsAvailable) {
  EXPECT_GT(AvailableMemory(), int64_t{1} << 20);
  EXPECT_LT(AvailableMemory(), int64_t{1} << 50);
}

}  // namespace
}  // namespace longspan
