#include "core/event.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/clock.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;

void DiskOnFire() { throw std::runtime_error("disk on fire"); }

TEST(Event, ADefaultOneHasHappened) {
  const Event event;
  EXPECT_TRUE(event.Done());
  event.Wait();
  int calls = 0;
  event.OnDone([&](const Failure& failure) { calls += failure ? 100 : 1; });
  EXPECT_EQ(calls, 1);
}

TEST(Event, WaitEndsWhenItHappensAndSeesWhatCameBefore) {
  for (const milliseconds delay : {milliseconds(0), milliseconds(5)}) {  // within the spin, and asleep
    EventSource source;
    const Event event = source.event();
    EXPECT_FALSE(event.Done());
    int written = 0;
    std::thread setter([&, delay] {
      if (delay.count() > 0) std::this_thread::sleep_for(delay);
      written = 1;
      source.Set();
    });
    std::vector<std::thread> waiters;
    for (int i = 0; i < 3; ++i) {
      waiters.emplace_back([&] {
        event.Wait();
        EXPECT_EQ(written, 1);
        EXPECT_TRUE(event.Done());
      });
    }
    setter.join();
    for (std::thread& waiter : waiters) waiter.join();
  }
}

TEST(Event, AFailureIsRethrownByEveryWait) {
  EventSource source;
  const Event event = source.event();
  source.Fail(DiskOnFire);
  source.Set();  // too late
  EXPECT_TRUE(event.Done());
  for (int i = 0; i < 2; ++i) EXPECT_THROW(event.Wait(), std::runtime_error);
  EventSource set;
  set.Set();
  set.Fail(DiskOnFire);
  set.event().Wait();
}

TEST(Event, CallsBackOnceWithWhatMadeItFail) {
  for (const bool fails : {false, true}) {
    EventSource source;
    int before = 0, after = 0;
    const auto count = [&](int& calls) {
      return [&calls, fails](const Failure& failure) { calls += (failure != nullptr) == fails ? 1 : 100; };
    };
    source.event().OnDone(count(before));
    source.event().OnDone(count(before));
    EXPECT_EQ(before, 0);
    if (fails) source.Fail(DiskOnFire);
    source.Set();
    source.event().OnDone(count(after));
    EXPECT_EQ(before, 2);
    EXPECT_EQ(after, 1);
  }
}

TEST(Event, ACallbackMayChainToAnotherEvent) {
  EventSource first, second;
  first.event().OnDone([&](const Failure& failure) { second.Fail(failure); });
  first.Fail(DiskOnFire);
  EXPECT_THROW(second.event().Wait(), std::runtime_error);
}

TEST(Event, SaysWhenWhatItIsAboutBegan) {
  EventSource source, silent;
  const double before = Now();
  source.Begin();
  const double after = Now();
  std::this_thread::sleep_for(milliseconds(1));
  source.Begin();  // the first call counts
  source.Set();
  silent.Set();
  EXPECT_GE(source.event().began(), before);
  EXPECT_LE(source.event().began(), after);
  EXPECT_EQ(silent.event().began(), 0);
  EXPECT_EQ(Event().began(), 0);
}

// Numbers put two together only in a dry run.
TEST(Event, ANumberIsOfTheHandleAlone) {
  EventSource a, b;
  const Event numbered = a.event().WithWork(7), other = b.event().WithWork(9);
  EXPECT_EQ(numbered.work(), 7);
  EXPECT_EQ(a.event().work(), 0);
  EXPECT_EQ(Both(Event::OfWork(3), Event::OfWork(5)).work(), 5);
  EXPECT_EQ(Both(Event::OfWork(3), Event()).work(), 3);
  const Event both = Both(numbered, other);
  b.Set();
  EXPECT_FALSE(both.Done());
  EXPECT_FALSE(numbered.Done());
  a.Set();
  EXPECT_TRUE(both.Done());
}

TEST(Event, BothHappensWithTheSecond) {
  for (const bool first_is_a : {true, false}) {
    EventSource a, b;
    const Event both = Both(a.event(), b.event());
    (first_is_a ? a : b).Set();
    EXPECT_FALSE(both.Done());
    (first_is_a ? b : a).Set();
    EXPECT_TRUE(both.Done());
    both.Wait();
  }
  EXPECT_TRUE(Both({}, {}).Done());
}

TEST(Event, BothFailsOnlyOnceNeitherIsUnderWay) {
  EventSource a, b;
  const Event both = Both(a.event(), b.event()), other = Both(b.event(), a.event());
  a.Fail(DiskOnFire);
  EXPECT_FALSE(both.Done());
  b.Set();
  EXPECT_THROW(both.Wait(), std::runtime_error);
  EXPECT_THROW(other.Wait(), std::runtime_error);
}

}  // namespace
}  // namespace longspan
