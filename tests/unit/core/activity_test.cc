#include "core/activity.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "core/clock.h"
#include "support/files.h"

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

}  // namespace
}  // namespace longspan
