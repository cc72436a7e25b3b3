#include "core/trace_recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"

namespace longspan {
namespace {

Work Moved(WorkKind kind, int64_t bytes = 8) {
  Work work;
  work.kind = kind;
  work.bytes = bytes;
  return work;
}

Work Computed(std::string_view name) {
  Work work;
  work.name = name;
  work.flops = 5;
  return work;
}

void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

std::vector<std::string> NamesOf(const TraceRecorder& recorder) {
  std::vector<std::string> names;
  for (const TraceSpan& span : recorder.spans())
    names.push_back(fmt::format("{}: {}", Name(span.lane), span.name));
  return names;
}

TEST(TraceRecorder, KeepsWhatIsDoneBetweenStartAndStop) {
  TraceRecorder recorder(2, 100);
  const auto compute = [&](std::string_view name) {
    recorder.Took(1, 2);
    recorder.Compute(Computed(name));
  };
  compute("before");
  recorder.Start();
  compute("norm");
  EventSource early, late;
  recorder.Transfer(Moved(WorkKind::kSend, 42), {}, early.event());
  recorder.Transfer(Moved(WorkKind::kToDisk), {}, late.event());
  early.Set();
  recorder.Stop();
  compute("after");
  recorder.Transfer(Moved(WorkKind::kRecv), {}, {});
  late.Set();  // what was begun in time
  EXPECT_EQ(NamesOf(recorder), (std::vector<std::string>{"compute: norm", "link: send", "disk: to_disk"}));
  const TraceSpan norm = recorder.spans()[0], send = recorder.spans()[1];
  EXPECT_EQ(norm.rank, 2);
  EXPECT_EQ(norm.begin, 1);
  EXPECT_EQ(norm.end, 2);
  EXPECT_EQ(norm.flops, 5);
  EXPECT_EQ(send.bytes, 42);
}

TEST(TraceRecorder, ATransferLastsFromItsBeginToItsEnd) {
  TraceRecorder recorder(0, 100);
  recorder.Start();
  EventSource source;
  const Event event = recorder.Transfer(Moved(WorkKind::kAllGather), {}, source.event());
  EXPECT_FALSE(event.Done());
  Sleep(2);
  const double begin = Now();
  source.Begin();
  Sleep(2);
  source.Set();
  const double end = Now();
  const TraceSpan span = recorder.spans().at(0);
  EXPECT_GE(span.begin, begin);
  EXPECT_GE(span.end, span.begin + 0.002);
  EXPECT_LE(span.end, end);
}

// Whatever is under way at once, a lane does one thing at a time.
TEST(TraceRecorder, SpansOfALaneDoNotOverlap) {
  TraceRecorder recorder(0, 100);
  recorder.Start();
  std::vector<EventSource> sources(6);
  const WorkKind kinds[] = {WorkKind::kSend, WorkKind::kRecv, WorkKind::kAllToAll,
                            WorkKind::kSend, WorkKind::kRecv, WorkKind::kReduceScatter};
  for (size_t i = 0; i < sources.size(); ++i) {
    recorder.Transfer(Moved(kinds[i]), {}, sources[i].event());
    Sleep(1);
  }
  for (const size_t i : {3u, 0u, 5u, 4u, 1u, 2u}) {
    Sleep(1);
    sources[i].Set();
  }
  std::map<TraceLane, double> last;
  for (const TraceSpan& span : recorder.spans()) {
    EXPECT_GE(span.begin, last[span.lane]);
    EXPECT_GE(span.end, span.begin);
    last[span.lane] = span.end;
  }
  EXPECT_EQ(recorder.spans().size(), 6u);
  EXPECT_EQ(last.size(), 2u);  // what is received has a lane of its own
}

TEST(TraceRecorder, WaitsAreNamedByWhatTheyAreFor) {
  TraceRecorder recorder(0, 100);
  recorder.Start();
  EventSource received, unknown;
  const Event event = recorder.Transfer(Moved(WorkKind::kRecv), {}, received.event());
  std::thread peer([&] {
    Sleep(5);
    received.Set();
    Sleep(5);
    unknown.Set();
  });
  recorder.Wait(event);
  EXPECT_TRUE(received.event().Done());
  recorder.Wait(unknown.event());
  recorder.Wait(event);  // has happened: no time is spent
  peer.join();
  EXPECT_EQ(NamesOf(recorder),
            (std::vector<std::string>{"receive: recv", "compute: wait for recv", "compute: wait"}));
}

TEST(TraceRecorder, WhatFailsIsNoSpanAndItsWaitThrows) {
  TraceRecorder recorder(0, 100);
  recorder.Start();
  EventSource source;
  const Event event = recorder.Transfer(Moved(WorkKind::kSend), {}, source.event());
  std::thread peer([&] {
    Sleep(2);
    source.Fail([] { throw std::runtime_error("cable cut"); });
  });
  EXPECT_THROW(recorder.Wait(event), std::runtime_error);
  peer.join();
  EXPECT_TRUE(recorder.spans().empty());
}

TEST(TraceRecorder, KeepsNoMoreThanItMayAndCountsTheRest) {
  TraceRecorder recorder(0, 3);
  recorder.Start();
  for (int i = 0; i < 10; ++i) {
    recorder.Took(i, i + 1);
    recorder.Compute(Computed("add"));
  }
  EXPECT_EQ(recorder.spans().size(), 3u);
  EXPECT_EQ(recorder.spans().back().end, 3);
  EXPECT_EQ(recorder.num_left_out(), 7);
}

// A transfer may end when its recorder is gone.
TEST(TraceRecorder, MayGoBeforeWhatItWatches) {
  EventSource source;
  {
    TraceRecorder recorder(0, 10);
    recorder.Start();
    recorder.Transfer(Moved(WorkKind::kSend), {}, source.event());
  }
  source.Set();
}

}  // namespace
}  // namespace longspan
