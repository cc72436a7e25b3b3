#include "core/work_log.h"

#include <gtest/gtest.h>

#include "core/trace.h"

namespace longspan {
namespace {

Work Transferred(WorkKind kind, std::span<const int> ranks = {}) {
  Work work;
  work.kind = kind;
  work.ranks = ranks;
  work.bytes = 8;
  return work;
}

TEST(WorkLogTest, NumbersWorkAndKeepsWhatComesAfterWhat) {
  WorkLog log;
  Work product;
  product.kind = WorkKind::kMatmul;
  log.Compute(product);
  const std::vector<int> first = {0, 3}, second = {0, 1, 2, 3};
  const Event sent = log.Transfer(Transferred(WorkKind::kSend, first), {}, {});
  const Event stored = log.Transfer(Transferred(WorkKind::kToDisk), sent, {});
  log.Transfer(Transferred(WorkKind::kAllGather, second), {}, {});
  log.Transfer(Transferred(WorkKind::kRecv, first), {}, {});
  log.Wait(stored);
  log.Wait(Event());  // has happened anyway
  EXPECT_TRUE(sent.Done());
  EXPECT_EQ(sent.work(), 2);
  EXPECT_EQ(stored.work(), 3);
  const auto entries = log.entries();
  ASSERT_EQ(entries.size(), 6u);
  EXPECT_EQ(entries[0].step, WorkLog::Step::kCompute);
  EXPECT_EQ(entries[1].event, 0);
  EXPECT_EQ(entries[2].event, 2);
  EXPECT_EQ(entries[2].group, -1);
  EXPECT_EQ(entries[1].group, entries[4].group);
  ASSERT_EQ(log.groups().size(), 2u);
  EXPECT_EQ(log.groups()[static_cast<size_t>(entries[1].group)], first);
  EXPECT_EQ(log.groups()[static_cast<size_t>(entries[3].group)], second);
  EXPECT_EQ(entries[5].step, WorkLog::Step::kWait);
  EXPECT_EQ(entries[5].event, 3);
}

TEST(WorkLogTest, RefusesWhatCannotBe) {
  WorkLog log;
  EXPECT_THROW(log.Compute(Transferred(WorkKind::kSend)), std::logic_error);
  EXPECT_THROW(log.Transfer(Transferred(WorkKind::kMatmul), {}, {}), std::logic_error);
  EventSource source;  // nothing is in flight in a dry run
  EXPECT_THROW(log.Transfer(Transferred(WorkKind::kToHost), {}, source.event()), std::logic_error);
}

TEST(Trace, ShowsSpansByRankAndLane) {
  const TraceSpan spans[] = {{0, TraceLane::kCompute, "matmul", 0.5, 0.75, 1e9, 0},
                             {1, TraceLane::kDisk, "to_disk", 0, 2, 0, 42}};
  const std::string json = ChromeTrace(spans);
  EXPECT_NE(
      json.find(R"({"ph": "X", "name": "matmul", "pid": 0, "tid": 0, "ts": 500000.000, "dur": 250000.000, )"
                R"("args": {"flops": 1000000000}})"),
      std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("name": "thread_name", "pid": 1, "tid": 5, "args": {"name": "disk"})"),
            std::string::npos);
  EXPECT_NE(json.find(R"("dur": 2000000.000, "args": {"bytes": 42}})"), std::string::npos);
  EXPECT_EQ(json.find(",\n]"), std::string::npos);
  EXPECT_EQ(ChromeTrace({}), "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n]}\n");
}

}  // namespace
}  // namespace longspan
