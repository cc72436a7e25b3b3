#include "core/background.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/check.h"
#include "support/expect_error.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;

TEST(Background, RunsTasksInAnotherThreadOneAfterTheOther) {
  Background background;
  std::vector<int> order;
  std::thread::id where;
  Event last;
  for (int i = 0; i < 100; ++i)
    last = background.Post([&, i] { order.push_back(i), where = std::this_thread::get_id(); });
  last.Wait();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(Background, ATaskWaitsForWhatItIsAfterAndOthersPass) {
  Background background;
  EventSource gate;
  std::atomic<bool> gated = false;
  const Event late = background.Post([&] { gated = true; }, gate.event());
  background.Post([] {}).Wait();
  EXPECT_FALSE(gated);
  EXPECT_FALSE(late.Done());
  gate.Set();
  late.Wait();
  EXPECT_TRUE(gated);
}

TEST(Background, WhatATaskThrowsFailsItsEventAndWhatIsAfterThat) {
  Background background;
  const Event failing = background.Post([] { throw Error("no room on the disk", ExitCode::kResource); });
  bool ran = false;
  const Event after = background.Post([&] { ran = true; }, failing);
  for (const Event& event : {failing, after})
    testing::ExpectError(
        {"no room on the disk"}, [&] { event.Wait(); }, ExitCode::kResource);
  EXPECT_FALSE(ran);
  EXPECT_THROW(background.Post([] { CHECK(false); }).Wait(), std::runtime_error);
  EXPECT_THROW(background.Post([] { throw std::bad_alloc(); }).Wait(), std::bad_alloc);
  EXPECT_THROW(background.Post([] { throw 1; }).Wait(), std::runtime_error);
  background.Post([&] { ran = true; }).Wait();  // goes on
  EXPECT_TRUE(ran);
}

TEST(Background, ItsEndFailsWhatHasNotBegun) {
  EventSource gate, begun;
  Event running, waiting, gated;
  std::atomic<int> ran = 0;
  {
    Background background;
    running = background.Post([&] {
      begun.Set();
      std::this_thread::sleep_for(milliseconds(20));
      ++ran;
    });
    waiting = background.Post([&] { ++ran; });
    gated = background.Post([&] { ++ran; }, gate.event());
    begun.event().Wait();
  }
  running.Wait();
  EXPECT_EQ(ran, 1);
  EXPECT_THROW(waiting.Wait(), std::logic_error);
  gate.Set();
  EXPECT_THROW(gated.Wait(), std::logic_error);
  EXPECT_EQ(ran, 1);
}

TEST(Background, CallsWhatSlowsItDownBeforeEachTask) {
  int calls = 0, calls_at_task = 0;
  Background background([&] { ++calls; });
  background.Post([] {});
  background.Post([&] { calls_at_task = calls; }).Wait();
  EXPECT_EQ(calls_at_task, 2);
}

}  // namespace
}  // namespace longspan
