#include "bench/calibrate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "bench/operations.h"
#include "bench/ranks.h"
#include "core/work_log.h"
#include "plan/simulate.h"
#include "train/replica.h"

namespace longspan::bench {
namespace {

TEST(Calibrate, AttentionsCostsSolveBothMeasurements) {
  const AttentionCosts costs = FitAttention(100, 100 * 0.5 + 8 * 0.25, 10, 10 * 0.5 + 8 * 0.25, 8);
  EXPECT_DOUBLE_EQ(costs.seconds_per_flop, 0.5);
  EXPECT_DOUBLE_EQ(costs.seconds_per_byte, 0.25);
  // Noise: the shorter took less than its pairs, or more than the longer.
  const AttentionCosts cheap = FitAttention(100, 100, 10, 5, 8);
  EXPECT_DOUBLE_EQ(cheap.seconds_per_flop, 1);
  EXPECT_DOUBLE_EQ(cheap.seconds_per_byte, 0);
  EXPECT_DOUBLE_EQ(FitAttention(100, 100, 10, 200, 8).seconds_per_flop, 1);
}

// Each operation is timed on all ranks, and says what work it is.
TEST(Calibrate, RanksDoTheSameAtOnce) {
  std::atomic<int> made = 0, done = 0;
  const std::vector<TimedOperation> timed = TimeOnRanks(3, 1, 2, [&](Backend& backend) {
    EXPECT_EQ(backend.num_threads(), 1);
    ++made;
    const auto x = std::make_shared<Buffer>(DType::kFloat32, std::initializer_list<int64_t>{1000});
    return std::vector<Operation>{[x, &done](Backend& b) {
      if (!b.dry()) ++done;
      b.Zero(x->tensor());
    }};
  });
  EXPECT_EQ(made, 3);
  EXPECT_GE(done, 3 * (1 + 2));
  ASSERT_EQ(timed.size(), 1u);
  EXPECT_EQ(timed[0].work.name, "zero");
  EXPECT_EQ(timed[0].work.bytes, 4000);
  EXPECT_GT(timed[0].seconds, 0);
  EXPECT_LT(timed[0].seconds, 1);
}

TEST(Calibrate, LinksAndDisksHaveRates) {
  const LinkRates links = MeasureLinks(2, 1);
  EXPECT_GT(links.gbps, 0.01);
  EXPECT_GT(links.message_us, 0);
  const DiskRates disk = MeasureDisk(std::filesystem::temp_directory_path().string(), 1);
  EXPECT_GT(disk.write_gbps, 0);
  EXPECT_GT(disk.read_gbps, 0);
}

std::set<std::string_view> NamesOf(DType dtype) {
  WorkLog log;
  const std::unique_ptr<Backend> dry = MakeDryBackend(1, &log);
  std::set<std::string_view> names;
  for (const Operation& operation : OtherOperations(dtype, *dry)) {
    operation(*dry);
    const Work& work = log.entries().back().work;
    EXPECT_EQ(work.kind, WorkKind::kPointwise);
    EXPECT_EQ(work.dtype == dtype || dtype == DType::kFloat32, true) << work.name;
    EXPECT_TRUE(names.insert(work.name).second) << work.name << " is there twice";
  }
  return names;
}

// Whatever a step does besides products and attention is among what is measured.
TEST(Calibrate, EveryOperationOfAStepIsMeasured) {
  const std::map<DType, std::set<std::string_view>> names = {{DType::kBFloat16, NamesOf(DType::kBFloat16)},
                                                             {DType::kFloat32, NamesOf(DType::kFloat32)}};
  for (const char* dtype : {"bfloat16", "float32"})
    for (const char* strategy : {"ring", "ulysses", "all_gather"}) {
      TrainConfig config;
      config.model_path = "tiny";
      config.max_target_length = 2048;
      config.ranks = 2;
      config.dtype = dtype;
      config.context_parallel_strategy = {{"", strategy}};
      const Job job = PrepareJobWithoutText(OpenModel(config));
      WorkLog log;
      RunDry(job, 0, {.recorder = &log});
      int operations = 0;
      for (const WorkLog::Entry& entry : log.entries()) {
        if (entry.step != WorkLog::Step::kCompute || entry.work.kind != WorkKind::kPointwise) continue;
        ++operations;
        EXPECT_TRUE(names.at(entry.work.dtype).contains(entry.work.name))
            << entry.work.name << " of " << Name(entry.work.dtype) << " in a step of " << dtype;
      }
      EXPECT_GT(operations, 20);
    }
}

}  // namespace
}  // namespace longspan::bench
