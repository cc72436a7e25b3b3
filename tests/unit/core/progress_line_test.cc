#include "core/progress_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

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

// What a terminal gets of a task of more than a second, in the process that a launcher calls `rank`.
std::string ShownByRank(const char* rank) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY), standard_error = dup(STDERR_FILENO);
  EXPECT_EQ(grantpt(terminal) + unlockpt(terminal), 0);
  const int end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  EXPECT_EQ(dup2(end, STDERR_FILENO), STDERR_FILENO);
  setenv("PMI_RANK", rank, 1);
  {
    ProgressLine line("reading a.txt", kMegabytes, 2000000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1010));
    line.Update(1000000);
  }
  unsetenv("PMI_RANK");
  dup2(standard_error, STDERR_FILENO);
  char text[256] = {};
  fcntl(terminal, F_SETFL, O_NONBLOCK);
  EXPECT_TRUE(read(terminal, text, sizeof text - 1) >= 0 || errno == EAGAIN);
  for (const int fd : {terminal, end, standard_error}) close(fd);
  return text;
}

TEST(ProgressLine, OfProcessesTheFirstShowsIt) {
  EXPECT_NE(ShownByRank("0").find("reading a.txt: 1.0 of 2.0 MB"), std::string::npos);
  EXPECT_EQ(ShownByRank("1"), "");
}

TEST(Memory, SomeIsAvailable) {
  EXPECT_GT(AvailableMemory(), int64_t{1} << 20);
  EXPECT_LT(AvailableMemory(), int64_t{1} << 50);
}

}  // namespace
}  // namespace longspan
