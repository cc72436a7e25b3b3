#include "core/event.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

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
