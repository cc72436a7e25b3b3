#include "core/activity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "core/clock.h"
#include "support/files.h"
#include "support/wait_until.h"

namespace longspan {
namespace {

TEST(Activity, WaitingIsNone) {
  const Activity before = ActivityOfProcess();
  const double begin = Now();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(HasDoneSomething(before, ActivityOfProcess(), Now() - begin));
}

TEST(Activity, ThatOfTheThreadThatAsksIsNot) {
  const Activity before = ActivityOfProcess();
  const double begin = ThreadSeconds();
  while (ThreadSeconds() - begin < 0.05) {
  }
  EXPECT_LT(ActivityOfProcess().cpu_seconds - before.cpu_seconds, 0.04);
}

TEST(Activity, ComputingAndWritingAre) {
  const Activity before = ActivityOfProcess();
  std::thread([] {
    const double begin = ThreadSeconds();
    while (ThreadSeconds() - begin < 0.02) {
    }
  }).join();
  const Activity computed = ActivityOfProcess();
  EXPECT_TRUE(HasDoneSomething(before, computed, 0.1));

  const testing::TemporaryDirectory directory;
  std::ofstream(directory / "file") << std::string(200'000, 'x');
  EXPECT_TRUE(HasDoneSomething({ActivityOfProcess().cpu_seconds, computed.bytes}, ActivityOfProcess(), 100));
}

// A thread that waits for a disk is in the same state as one whose child of vfork lives.
TEST(Activity, WaitingForADiskThatMovesIs) {
  EXPECT_EQ(ActivityOfProcess().disk_bytes, 0);
  std::thread parent([] {
    if (vfork() == 0) {
      const timespec pause = {0, 300'000'000};
      nanosleep(&pause, nullptr);
      _exit(0);
    }
  });
  EXPECT_TRUE(testing::WaitUntil([] { return ActivityOfProcess().disk_bytes > 0; }));
  parent.join();
  EXPECT_EQ(ActivityOfProcess().disk_bytes, 0);

  EXPECT_TRUE(HasDoneSomething({.cpu_seconds = 0, .bytes = 0, .disk_bytes = 1},
                               {.cpu_seconds = 0, .bytes = 0, .disk_bytes = 1'000'000}, 1));
  EXPECT_FALSE(HasDoneSomething({.cpu_seconds = 0, .bytes = 0, .disk_bytes = 1},
                                {.cpu_seconds = 0, .bytes = 0, .disk_bytes = 1000}, 1));
  EXPECT_FALSE(HasDoneSomething({.cpu_seconds = 0, .bytes = 0, .disk_bytes = 0},
                                {.cpu_seconds = 0, .bytes = 0, .disk_bytes = 1'000'000}, 1))
      << "it has only begun to wait";
}

}  // namespace
}  // namespace longspan
