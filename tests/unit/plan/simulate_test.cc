#include "plan/simulate.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "core/check.h"

namespace longspan {
namespace {

// 1 TFLOP/s, 1 GB/s to everywhere: easy seconds.
Hardware Simple() {
  Hardware hardware;
  hardware.peak_tflops_bfloat16 = hardware.peak_tflops_float32 = 1;
  hardware.memory_gbps = hardware.link_gbps = hardware.network_gbps = hardware.host_gbps =
      hardware.disk_gbps = 1;
  hardware.island_ranks = 8;
  return hardware;
}

Work Product(double seconds) {
  Work work;
  work.kind = WorkKind::kMatmul;
  work.flops = 1e12 * seconds;
  return work;
}

Work Moved(WorkKind kind, double seconds, std::span<const int> ranks = {}) {
  Work work;
  work.kind = kind;
  work.bytes = static_cast<int64_t>(1e9 * seconds);
  work.ranks = ranks;
  return work;
}

class SimulateTest : public ::testing::Test {
 protected:
  Timeline Run(bool with_spans = false) { return Simulate(log_, Machine(hardware_, 2, 2), 0, with_spans); }
  static double Waited(const Timeline& t, Lane lane) { return t.waited[static_cast<size_t>(lane)]; }

  Hardware hardware_ = Simple();
  WorkLog log_;
  const std::vector<int> pair_ = {0, 1};
};

TEST_F(SimulateTest, ComputingIsOneThingAfterTheOther) {
  Work chunks = Product(2);
  chunks.times = 3;
  log_.Compute(chunks);
  log_.Compute(Moved(WorkKind::kPointwise, 0.5));
  const Timeline t = Run();
  EXPECT_DOUBLE_EQ(t.seconds, 6.5);
  EXPECT_DOUBLE_EQ(t.matmul, 6);
  EXPECT_DOUBLE_EQ(t.pointwise, 0.5);
  EXPECT_EQ(t.bound_by(), "matmul");
}

// A product takes as long as its memory is read where that takes longer.
TEST_F(SimulateTest, ProductsAreBoundByPeakOrMemory) {
  hardware_.kernels.matmul_efficiency = {{"", "0.5"}};
  hardware_.operation_us = 1e6;
  Work work = Product(1);
  work.bytes = 3'000'000'000;
  log_.Compute(work);
  EXPECT_DOUBLE_EQ(Run().seconds, 4);
  work.bytes = 0;
  log_.Compute(work);
  EXPECT_DOUBLE_EQ(Run().seconds, 7);
}

TEST_F(SimulateTest, TransfersGoOnBesideComputingUntilWaitedFor) {
  const Event sent = log_.Transfer(Moved(WorkKind::kSend, 3, pair_), {}, {});
  log_.Compute(Product(2));
  log_.Wait(sent);
  log_.Compute(Product(1));
  const Timeline t = Run();
  EXPECT_DOUBLE_EQ(t.seconds, 4);
  EXPECT_DOUBLE_EQ(Waited(t, Lane::kLink), 1);
  EXPECT_DOUBLE_EQ(t.busy[static_cast<size_t>(Lane::kLink)], 3);
}

TEST_F(SimulateTest, ALaneDoesOneThingAtATimeAndLanesDontWaitForEachOther) {
  const Event first = log_.Transfer(Moved(WorkKind::kSend, 2, pair_), {}, {});
  const Event second = log_.Transfer(Moved(WorkKind::kAllGather, 2, pair_), {}, {});
  const Event stored = log_.Transfer(Moved(WorkKind::kToDisk, 3), {}, {});
  log_.Wait(stored);
  EXPECT_DOUBLE_EQ(Run().seconds, 4);  // the link goes on after the last wait
  log_.Wait(first);
  log_.Wait(second);
  const Timeline t = Run();
  EXPECT_DOUBLE_EQ(t.seconds, 4);
  EXPECT_DOUBLE_EQ(Waited(t, Lane::kDisk), 3);
  EXPECT_DOUBLE_EQ(Waited(t, Lane::kLink), 1);
}

TEST_F(SimulateTest, ATransferBeginsAfterItsEventAndWhatWasComputed) {
  log_.Compute(Product(1));
  const Event out = log_.Transfer(Moved(WorkKind::kToHost, 2), {}, {});
  const Event stored = log_.Transfer(Moved(WorkKind::kToDisk, 1), out, {});
  log_.Wait(stored);
  EXPECT_DOUBLE_EQ(Run().seconds, 4);
}

TEST_F(SimulateTest, TheHostLinkGoesBothWaysAtOnce) {
  log_.Transfer(Moved(WorkKind::kToHost, 2), {}, {});
  log_.Wait(log_.Transfer(Moved(WorkKind::kFromHost, 2), {}, {}));
  EXPECT_DOUBLE_EQ(Run().seconds, 2);
}

// What comes from the left comes as what goes to the right leaves, whichever was begun first.
TEST_F(SimulateTest, MessagesArriveAsThoseOfThisRankLeave) {
  const Event early = log_.Transfer(Moved(WorkKind::kRecv, 2, pair_), {}, {});
  log_.Compute(Product(1));
  log_.Transfer(Moved(WorkKind::kSend, 2, pair_), {}, {});
  log_.Transfer(Moved(WorkKind::kSend, 2, pair_), {}, {});
  const Event late = log_.Transfer(Moved(WorkKind::kRecv, 2, pair_), {}, {});
  log_.Wait(early);
  log_.Compute(Product(0.5));
  log_.Wait(late);
  const Timeline t = Run();
  EXPECT_DOUBLE_EQ(t.seconds, 5);
  EXPECT_DOUBLE_EQ(Waited(t, Lane::kLink), 2 + 1.5);
}

TEST_F(SimulateTest, WaitingForWhatNobodySendsIsAFault) {
  log_.Wait(log_.Transfer(Moved(WorkKind::kRecv, 2, pair_), {}, {}));
  EXPECT_THROW(Run(), std::logic_error);
}

TEST_F(SimulateTest, AttentionByWidthRowsAndSequences) {
  hardware_.kernels.attention_forward_efficiency = {{"64", "0.5"}};
  hardware_.kernels.attention_backward_efficiency = {{"64", "0.25"}};
  hardware_.attention_backward_one_sequence = {{"1024", "0.5"}};
  hardware_.attention_call_us = 1e6;
  Work work = Product(1);
  work.width = 64;
  work.pairs = 1;
  work.state_bytes = 500'000'000;
  const Machine several(hardware_, 1, 2), one(hardware_, 1, 1);
  work.kind = WorkKind::kAttentionForward;
  EXPECT_DOUBLE_EQ(several.ComputeSeconds(work), 1 + 2 + 0.5);
  EXPECT_DOUBLE_EQ(one.ComputeSeconds(work), 1 + 2 + 0.5);
  work.kind = WorkKind::kAttentionBackward;
  EXPECT_DOUBLE_EQ(several.ComputeSeconds(work), 1 + 4 + 0.5);
  EXPECT_DOUBLE_EQ(one.ComputeSeconds(work), 1 + 8 + 0.5);
  work.pairs = 0;
  work.flops = 0;  // a call that sees nothing is skipped
  EXPECT_DOUBLE_EQ(several.ComputeSeconds(work), 0.5);
}

// By FLOPs a byte, what they are for, and dtype; a float32's that isn't given is bfloat16's.
TEST_F(SimulateTest, ProductsByIntensityPurposeAndDType) {
  hardware_.memory_gbps = 1e6;
  hardware_.kernels.matmul_efficiency = {{"100", "0.25"}, {"400", "0.75"}};
  hardware_.kernels.weight_gradient_efficiency = {{"", "0.5"}};
  hardware_.kernels_float32.matmul_efficiency = {{"", "0.125"}};
  const Machine machine(hardware_, 1, 1);
  const auto seconds = [&](double flops_a_byte, ProductKind product, DType dtype) {
    Work work = Product(1);
    work.bytes = static_cast<int64_t>(work.flops / flops_a_byte);
    work.product = product;
    work.dtype = dtype;
    return machine.ComputeSeconds(work);
  };
  EXPECT_DOUBLE_EQ(seconds(100, ProductKind::kForward, DType::kBFloat16), 4);
  EXPECT_DOUBLE_EQ(seconds(200, ProductKind::kForward, DType::kBFloat16), 2);
  EXPECT_DOUBLE_EQ(seconds(800, ProductKind::kInputGradient, DType::kBFloat16), 1 / 0.75);
  EXPECT_DOUBLE_EQ(seconds(100, ProductKind::kWeightGradient, DType::kBFloat16), 2);
  EXPECT_DOUBLE_EQ(seconds(100, ProductKind::kInputGradient, DType::kFloat32), 8);
  EXPECT_DOUBLE_EQ(seconds(100, ProductKind::kWeightGradient, DType::kFloat32), 2);
}

TEST_F(SimulateTest, OperationsByTheirOwnRates) {
  hardware_.kernels.operation_gbps = {{"rope", "2"}};
  hardware_.kernels.attention_forward_efficiency = {{"", "0.5"}};
  hardware_.kernels.attention_forward_gbps = {{"64", "4"}};
  const Machine machine(hardware_, 1, 1);
  Work work = Moved(WorkKind::kPointwise, 1);
  work.name = "rope";
  EXPECT_DOUBLE_EQ(machine.ComputeSeconds(work), 0.5);
  work.dtype = DType::kFloat32;
  EXPECT_DOUBLE_EQ(machine.ComputeSeconds(work), 0.5);
  work.name = "norm";
  EXPECT_DOUBLE_EQ(machine.ComputeSeconds(work), 1);

  Work attention = Moved(WorkKind::kAttentionForward, 2);
  attention.flops = 1e12;
  attention.pairs = 1;
  attention.width = 64;
  attention.state_bytes = 1'000'000'000;  // are among the bytes
  EXPECT_DOUBLE_EQ(machine.ComputeSeconds(attention), 2 + 2 / 4.0);
}

// Two ranks of one thread share two cores, the disk and the memory; a rank of two threads has them alone.
TEST_F(SimulateTest, RanksOfACpuShareIt) {
  hardware_.kind = "cpu";
  hardware_.cores = 2;
  hardware_.device_memory_gib = 8;
  hardware_.kernels.operation_gbps = {{"rope", "2"}};
  hardware_.matmul_threads_efficiency = {{"2", "0.8"}};
  hardware_.threads_us = {{"2", "1e6"}};
  const Hardware one = hardware_.OfRank(1, 2), half = hardware_.OfRank(2, 1),
                 crowded = hardware_.OfRank(4, 1);
  EXPECT_EQ(one.usable_memory_bytes(), 2 * half.usable_memory_bytes());
  EXPECT_DOUBLE_EQ(one.peak_flops(DType::kBFloat16), 2e12);
  EXPECT_DOUBLE_EQ(half.peak_flops(DType::kBFloat16), 1e12);
  EXPECT_DOUBLE_EQ(crowded.peak_flops(DType::kBFloat16), 0.5e12);
  const Machine of_one(one, 1, 1), of_half(half, 2, 1), of_crowded(crowded, 4, 1);
  EXPECT_DOUBLE_EQ(of_one.ComputeSeconds(Product(1.6)), 1 + 1);
  EXPECT_DOUBLE_EQ(of_half.ComputeSeconds(Product(1)), 1);
  EXPECT_DOUBLE_EQ(of_crowded.ComputeSeconds(Product(1)), 2);
  Work rope = Moved(WorkKind::kPointwise, 1);
  rope.name = "rope";
  EXPECT_DOUBLE_EQ(of_one.ComputeSeconds(rope), 1 + 0.25);
  EXPECT_DOUBLE_EQ(of_crowded.ComputeSeconds(rope), 1);
  EXPECT_DOUBLE_EQ(of_one.CopySeconds(Moved(WorkKind::kToDisk, 1)), 1);
  EXPECT_DOUBLE_EQ(of_half.CopySeconds(Moved(WorkKind::kToDisk, 1)), 2);
  const Hardware device = Simple();
  EXPECT_DOUBLE_EQ(device.OfRank(4, 8).peak_flops(DType::kBFloat16), 1e12);
}

// A copy takes a core from computing, unless one is left over; a disk takes none.
TEST_F(SimulateTest, CopiesOnACpuTakeComputing) {
  hardware_.kind = "cpu";
  hardware_.cores = 2;
  log_.Transfer(Moved(WorkKind::kToHost, 1), {}, {});
  log_.Compute(Product(3));
  const auto seconds = [&](int64_t ranks, int64_t threads) {
    const Hardware rank = hardware_.OfRank(ranks, threads);
    return Simulate(log_, Machine(rank, static_cast<int>(ranks), 1), 0).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(1, 1), 3);              // of two cores
  EXPECT_DOUBLE_EQ(seconds(2, 1), 3 + 1);          // the core of the rank
  EXPECT_DOUBLE_EQ(seconds(1, 2), 1.5 + 0.5 * 1);  // one of two
  log_ = {};
  log_.Transfer(Moved(WorkKind::kToDisk, 1), {}, {});
  log_.Compute(Product(3));
  EXPECT_DOUBLE_EQ(seconds(1, 2), 1.5);
}

TEST_F(SimulateTest, ADiskMayReadFasterThanItWrites) {
  hardware_.disk_read_gbps = 4;
  const Machine machine(hardware_, 1, 1);
  EXPECT_DOUBLE_EQ(machine.CopySeconds(Moved(WorkKind::kToDisk, 1)), 1);
  EXPECT_DOUBLE_EQ(machine.CopySeconds(Moved(WorkKind::kFromDisk, 1)), 0.25);
}

TEST_F(SimulateTest, SpansAreTheTimeline) {
  Work product = Product(2);
  product.name = "matmul";
  log_.Wait(log_.Transfer(Moved(WorkKind::kToDisk, 1), {}, {}));
  log_.Compute(product);
  const Timeline t = Run(true);
  ASSERT_EQ(t.spans.size(), 3u);
  EXPECT_EQ(t.spans[0].lane, TraceLane::kDisk);
  EXPECT_EQ(t.spans[0].name, "to_disk");
  EXPECT_EQ(t.spans[1].lane, TraceLane::kCompute);
  EXPECT_EQ(t.spans[1].name, "wait for to_disk");
  EXPECT_DOUBLE_EQ(t.spans[1].begin, 0);
  EXPECT_DOUBLE_EQ(t.spans[1].end, 1);
  EXPECT_DOUBLE_EQ(t.spans[2].begin, 1);
  EXPECT_DOUBLE_EQ(t.spans[2].end, 3);
  EXPECT_DOUBLE_EQ(t.spans[2].flops, 2e12);
  EXPECT_TRUE(Run().spans.empty());
}

TEST(CurveTest, IsLinearInTheLogarithmAndFlatOutside) {
  const Curve curve({{"64", "0.2"}, {"256", "0.6"}}, "key");
  EXPECT_DOUBLE_EQ(curve.At(64), 0.2);
  EXPECT_DOUBLE_EQ(curve.At(128), 0.4);
  EXPECT_DOUBLE_EQ(curve.At(256), 0.6);
  EXPECT_DOUBLE_EQ(curve.At(16), 0.2);
  EXPECT_DOUBLE_EQ(curve.At(512), 0.6);
  EXPECT_DOUBLE_EQ(Curve({}, "key").At(7), 1);
  EXPECT_THROW(Curve({{"x", "0.5"}}, "key"), Error);
  EXPECT_THROW(Curve({{"64", "1.5"}}, "key"), Error);
  EXPECT_THROW(Curve({{"64", "0"}}, "key"), Error);
  EXPECT_THROW(Curve({{"-1", "0.5"}}, "key"), Error);
  EXPECT_DOUBLE_EQ(Curve({{"", "0.5"}}, "key").At(7), 0.5);
  EXPECT_DOUBLE_EQ(Curve({{"64", "12"}}, "key", kAnyRate).At(7), 12);
  EXPECT_THROW(RatesByName({{"rope", "0"}}, "key"), Error);
  EXPECT_THROW(RatesByName({{"", "1"}}, "key"), Error);
}

}  // namespace
}  // namespace longspan
