#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "core/work_log.h"
#include "model/flops.h"
#include "model/sequence.h"
#include "train/replica.h"

namespace longspan {
namespace {

Hardware Machine1() {
  Hardware hardware;
  hardware.hardware_name = "machine";
  hardware.device_memory_gib = 80;
  hardware.host_memory_gib = 100;
  hardware.peak_tflops_bfloat16 = 900;
  hardware.peak_tflops_float32 = 60;
  hardware.memory_gbps = 3000;
  hardware.link_gbps = 400;
  hardware.island_ranks = 8;
  hardware.network_gbps = 50;
  hardware.host_gbps = 50;
  hardware.disk_gbps = 3;
  return hardware;
}

struct Case {
  std::string model = "tiny", strategy = "ring", layout = "auto", mask = "causal";
  int64_t length = 4096, ranks = 4, data = 1, document_length = 0, sequences = 0;
};

Job JobOf(const Case& c) {
  TrainConfig config;
  config.model_path = c.model;
  config.max_target_length = c.length;
  config.ranks = c.ranks;
  config.data_parallelism = c.data;
  config.global_batch_size = c.sequences;
  config.context_parallel_strategy = {{"", c.strategy}};
  config.context_parallel_layout = c.layout;
  config.attention_mask = c.mask;
  if (c.mask == "sliding_window") config.sliding_window_size = 100;
  Job job = OpenModel(config);
  job.document_length = c.document_length;
  return PrepareJobWithoutText(std::move(job));
}

double Sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

TEST(PlanTest, PairsOfAllRanksAreThoseOfTheMask) {
  for (const char* strategy : {"all_gather", "ring", "ulysses", "usp"})
    for (const char* layout : {"contiguous", "zigzag", "striped"})
      for (const char* mask : {"causal", "sliding_window"})
        for (const int64_t document_length : {0, 300}) {
          const Job job = JobOf({.strategy = strategy,
                                 .layout = layout,
                                 .mask = mask,
                                 .length = 1000,
                                 .ranks = 3,
                                 .document_length = document_length});
          const Mask whole = MakeMask(job.mask, job.EqualDocuments());
          const double pairs = static_cast<double>(whole.CountPairs() * job.model.num_hidden_layers);
          EXPECT_NEAR(Sum(MakePlan(job, Machine1()).pairs_by_rank), pairs, 1e-6 * pairs)
              << strategy << layout;
        }
}

// Contiguous shares of a causal mask: rank r has 2r + 1 of P² parts, and the last the most.
TEST(PlanTest, BalanceIsThatOfTheBusiestRank) {
  EXPECT_NEAR(MakePlan(JobOf({.layout = "contiguous"}), Machine1()).balance(), 7 / 4.0, 1e-3);
  EXPECT_NEAR(MakePlan(JobOf({.layout = "zigzag"}), Machine1()).balance(), 1, 1e-3);
  EXPECT_EQ(MakePlan(JobOf({.ranks = 1}), Machine1()).balance(), 1);
}

// The log of the rank holds exactly the products that the model's count says, and what its links carried.
TEST(PlanTest, WorkIsExact) {
  for (const char* strategy : {"all_gather", "ring", "ulysses", "usp"}) {
    const Job job =
        JobOf({.strategy = strategy, .layout = "zigzag", .length = 8192, .document_length = 2048});
    WorkLog log;
    const DryRun dry = RunDry(job, 1, {.accelerator = true, .recorder = &log});
    double attention = 0;
    int64_t sent = 0;
    for (const WorkLog::Entry& entry : log.entries()) {
      const Work& work = entry.work;
      if (entry.step == WorkLog::Step::kWait) continue;
      if (work.kind == WorkKind::kAttentionForward || work.kind == WorkKind::kAttentionBackward)
        attention += work.flops;
      if (entry.step == WorkLog::Step::kTransfer && work.kind != WorkKind::kRecv) sent += work.bytes;
    }
    EXPECT_EQ(sent, dry.traffic.bytes_sent) << strategy;
    double all = 0;
    for (int rank = 0; rank < job.mesh.ranks(); ++rank) {
      WorkLog of_rank;
      RunDry(job, rank, {.accelerator = true, .recorder = &of_rank});
      for (const WorkLog::Entry& entry : of_rank.entries())
        if (entry.work.kind == WorkKind::kAttentionForward || entry.work.kind == WorkKind::kAttentionBackward)
          all += entry.work.flops;
    }
    const StepFlops flops = CountFlops(job.model, job.mask, 8192, job.EqualDocuments());
    EXPECT_NEAR(all, flops.attention_hardware, 1e-9 * all) << strategy;
    EXPECT_GT(attention, 0);
  }
}

// Memory and messages of a plan are those of the dry run, whose equality with a run's is tested elsewhere.
TEST(PlanTest, TakesWhatTheDryRunTakes) {
  const Job job = JobOf({.strategy = "usp"});
  const DryRun dry = RunDry(job, 0, {.accelerator = true});
  const Plan plan = MakePlan(job, Machine1());
  int64_t device = 0;
  for (const auto& [name, bytes] : dry.memory)
    if (name != "sequences") device += bytes;
  EXPECT_EQ(plan.device_memory_bytes, device);
  EXPECT_EQ(plan.host_memory_bytes, dry.memory.at("sequences") + dry.host_memory.at("checkpoint_snapshot"));
  EXPECT_FALSE(plan.memory.contains("weights.packed"));  // of the CPU's kernels alone
  EXPECT_FALSE(plan.memory.contains("step.attention workspace"));
  EXPECT_EQ(plan.bytes_sent, dry.traffic.bytes_sent);
  EXPECT_EQ(plan.messages_sent, dry.traffic.messages_sent);
}

TEST(PlanTest, RatesFollowFromTime) {
  const Job job = JobOf({.model = "llama3.1-8b", .length = 65536, .ranks = 8});
  const Plan plan = MakePlan(job, Machine1());
  const StepFlops flops = CountFlops(job.model, job.mask, 65536, {{0, 65536}});
  EXPECT_DOUBLE_EQ(plan.mfu, flops.useful / plan.step_seconds / (8 * 900e12));
  EXPECT_DOUBLE_EQ(plan.mfu_maxtext, flops.maxtext / plan.step_seconds / (8 * 900e12));
  EXPECT_DOUBLE_EQ(plan.tokens_per_second_per_device, 65536 / plan.step_seconds / 8);
  EXPECT_GT(plan.hfu, plan.mfu);
  EXPECT_LT(plan.hfu, 1);
  const Timeline& t = plan.timeline;
  EXPECT_NEAR(plan.step_seconds,
              t.attention + t.matmul + t.pointwise + t.waited[1] + t.waited[2] + t.waited[3], 1e-9);
}

TEST(PlanTest, SaysWhatDoesNotFit) {
  const Plan large = MakePlan(JobOf({.model = "llama3.1-70b", .length = 8192}), Machine1());
  EXPECT_FALSE(large.fits);
  EXPECT_NE(large.misfit.find("device memory"), std::string::npos);
  const Plan small = MakePlan(JobOf({}), Machine1());
  EXPECT_TRUE(small.fits);
  EXPECT_EQ(small.misfit, "");
  Hardware no_host = Machine1();
  no_host.host_memory_gib = 0;
  EXPECT_NE(MakePlan(JobOf({}), no_host).misfit.find("host memory"), std::string::npos);
}

// A second micro-step takes as long as the first; sums over ranks and update come on top.
TEST(PlanTest, MicroStepsAddUp) {
  const double one = MakePlan(JobOf({.model = "llama3.2-1b", .length = 65536}), Machine1()).step_seconds;
  const double three =
      MakePlan(JobOf({.model = "llama3.2-1b", .length = 65536, .sequences = 3}), Machine1()).step_seconds;
  EXPECT_GT(three, 2.9 * one);
  EXPECT_LT(three, 3.1 * one);
}

// Where they run together they take the memory of a sequence as long as both, each message carries both, and
// what is computed is the same.
TEST(PlanTest, SequencesMayRunTogether) {
  const Case two = {.model = "llama3.2-1b", .length = 65536, .sequences = 2};
  Hardware machine = Machine1();
  const Plan apart = MakePlan(JobOf(two), machine);
  machine.sequences_together = true;
  const Plan together = MakePlan(JobOf(two), machine);
  EXPECT_EQ(together.memory.at("activations.decoder_layer_input"),
            2 * apart.memory.at("activations.decoder_layer_input"));
  EXPECT_EQ(PlanMemory(JobOf(two), machine).device_memory_bytes, together.device_memory_bytes);
  EXPECT_LT(together.messages_sent, apart.messages_sent);
  EXPECT_NEAR(together.hardware_flops, apart.hardware_flops, 1e-9 * apart.hardware_flops);
  EXPECT_EQ(together.pairs_by_rank, apart.pairs_by_rank);
  EXPECT_DOUBLE_EQ(together.useful_flops, apart.useful_flops);
  EXPECT_LE(together.step_seconds, apart.step_seconds);

  const Case one = {.model = "llama3.2-1b", .length = 65536};
  EXPECT_EQ(MakePlan(JobOf(one), machine).memory, MakePlan(JobOf(one), Machine1()).memory);
}

// Many micro-steps are reckoned from a few; a timeline with spans goes through all of them.
TEST(PlanTest, ManyMicroStepsGoOnAsAFew) {
  for (const char* strategy : {"ring", "all_gather"}) {
    const Job job =
        JobOf({.model = "llama3.2-1b", .strategy = strategy, .length = 65536, .data = 2, .sequences = 14});
    const Plan reckoned = MakePlan(job, Machine1());
    const Plan whole = MakePlan(job, Machine1(), /*with_spans=*/true);
    EXPECT_NEAR(reckoned.step_seconds, whole.step_seconds, 1e-9 * whole.step_seconds);
    EXPECT_NEAR(reckoned.timeline.attention, whole.timeline.attention, 1e-9 * whole.step_seconds);
    EXPECT_NEAR(reckoned.timeline.waited[1], whole.timeline.waited[1], 1e-9 * whole.step_seconds);
    EXPECT_NEAR(reckoned.hardware_flops, whole.hardware_flops, 1e-9 * whole.hardware_flops);
    EXPECT_EQ(reckoned.bytes_sent, whole.bytes_sent);
    EXPECT_EQ(reckoned.messages_sent, whole.messages_sent);
    EXPECT_EQ(reckoned.memory, whole.memory);
  }
  const Job many = JobOf({.length = 4096, .ranks = 8, .sequences = 1 << 20});
  EXPECT_GT(MakePlan(many, Machine1()).step_seconds, 0);  // soon
}

// A dry run takes no memory, however much it is of.
TEST(PlanTest, LengthTakesNothing) {
  const Plan plan = MakePlan(JobOf({.length = int64_t{1} << 31, .ranks = 2}), Machine1());
  EXPECT_FALSE(plan.fits);
  EXPECT_GE(plan.memory.at("rotary tables and tokens"), int64_t{1} << 34);
  EXPECT_GT(plan.mfu, 0);
  EXPECT_LT(plan.mfu, 1);
}

// The rank whose shard is the largest may be another than the one that has most to attend to.
TEST(PlanTest, MemoryIsThatOfTheRankThatTakesMost) {
  TrainConfig config;
  config.model_path = "tiny-4-layers";
  config.max_target_length = 1001;
  config.ranks = 4;
  config.context_parallel_strategy = {{"", "all_gather"}};
  config.context_parallel_layout = "contiguous";
  config.shard_parameters = true;
  const Job job = PrepareJobWithoutText(OpenModel(config));
  int64_t largest = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const DryRun dry = RunDry(job, rank, {.accelerator = true});
    largest = std::max(largest, TotalBytes(dry.memory) - dry.memory.at("sequences"));
  }
  const Plan plan = MakePlan(job, Machine1());
  EXPECT_EQ(plan.device_memory_bytes, largest);
  EXPECT_EQ(PlanMemory(job, Machine1()).device_memory_bytes, largest);
}

// What is offloaded lies with the host or on a disk, and goes there and back once a step.
TEST(PlanTest, OffloadedActivationsAreCopied) {
  const auto plan_of = [](const std::string& context, const std::string& directory) {
    TrainConfig config;
    config.model_path = "llama3.2-1b";
    config.max_target_length = 65536;
    config.ranks = 4;
    config.remat_policy = "custom";
    config.context = context;
    config.offload_directory = directory;
    return MakePlan(PrepareJobWithoutText(OpenModel(config)), Machine1());
  };
  const Plan kept = plan_of("device", ""), host = plan_of("offload", ""),
             disk = plan_of("offload", ::testing::TempDir());
  const int64_t context = kept.memory.at("activations.context") + kept.memory.at("activations.context_lse");
  EXPECT_EQ(host.host_memory_bytes - kept.host_memory_bytes, context);
  EXPECT_LT(host.device_memory_bytes, kept.device_memory_bytes);
  EXPECT_EQ(kept.host_bytes, 0);
  EXPECT_GT(host.host_bytes, 0.8 * 2 * static_cast<double>(context));  // all but what is still in flight
  EXPECT_LE(host.host_bytes, 2 * context);
  EXPECT_EQ(host.disk_bytes, 0);
  EXPECT_EQ(disk.disk_bytes, host.host_bytes);
  EXPECT_EQ(disk.host_bytes, host.host_bytes);
  EXPECT_EQ(disk.host_memory_bytes, kept.host_memory_bytes);
  EXPECT_FALSE(disk.disk.empty());
  EXPECT_GE(disk.step_seconds, host.step_seconds);
  EXPECT_GE(host.step_seconds, kept.step_seconds);
}

// So does the optimizer's state, once an update.
TEST(PlanTest, OffloadedOptimizerStateIsCopied) {
  const auto plan_of = [](bool offload, const std::string& directory) {
    TrainConfig config;
    config.model_path = "llama3.2-1b";
    config.max_target_length = 65536;
    config.ranks = 4;
    config.global_batch_size = 2;
    config.optimizer_memory_host_offload = offload;
    config.offload_directory = directory;
    return MakePlan(PrepareJobWithoutText(OpenModel(config)), Machine1());
  };
  const Plan kept = plan_of(false, ""), host = plan_of(true, ""), disk = plan_of(true, ::testing::TempDir());
  const double moments = static_cast<double>(kept.memory.at("optimizer"));
  EXPECT_NEAR(static_cast<double>(host.host_memory.at("optimizer")) / moments, 1, 1e-3);
  EXPECT_NEAR(static_cast<double>(host.host_bytes) / (2 * moments), 1, 1e-3);
  EXPECT_EQ(kept.device_memory_bytes - host.device_memory_bytes,
            kept.memory.at("optimizer") - host.memory.at("optimizer in flight"));
  EXPECT_LT(host.memory.at("optimizer in flight"), kept.memory.at("optimizer") / 2);
  EXPECT_EQ(disk.disk_bytes, host.host_bytes);
  EXPECT_EQ(disk.host_bytes, host.host_bytes);
  EXPECT_EQ(disk.disk.at("optimizer"), host.host_memory.at("optimizer"));
  // An update cannot be faster than its state is read and written, both at once.
  EXPECT_GT(host.step_seconds, kept.step_seconds);
  EXPECT_GT(disk.step_seconds, host.step_seconds);
}

// And the weights: masters and compute weights in the update, compute weights before each use as well.
TEST(PlanTest, OffloadedParametersAreCopied) {
  const auto plan_of = [](bool offload, bool shard) {
    TrainConfig config;
    config.model_path = "llama3.1-8b";
    config.max_target_length = 65536;
    config.ranks = 8;
    config.shard_parameters = shard;
    config.parameter_memory_host_offload = offload;
    return MakePlan(PrepareJobWithoutText(OpenModel(config)), Machine1());
  };
  for (const bool shard : {false, true}) {
    const Plan kept = plan_of(false, shard), host = plan_of(true, shard);
    const int64_t masters = kept.memory.at("weights"), compute = kept.memory.at("weights.compute");
    EXPECT_EQ(host.memory.count("weights") + host.memory.count("weights.compute"), 0u);
    EXPECT_NEAR(static_cast<double>(host.host_memory.at("weights")) / static_cast<double>(masters), 1, 1e-3);
    EXPECT_NEAR(static_cast<double>(host.host_memory.at("weights.compute")) / static_cast<double>(compute), 1,
                1e-3);
    EXPECT_LT(host.device_memory_bytes, kept.device_memory_bytes);
    EXPECT_EQ(host.bytes_sent, kept.bytes_sent);
    // Forward and backward all but what is still there.
    const double update = 2 * static_cast<double>(masters + compute), use = static_cast<double>(compute);
    EXPECT_GT(static_cast<double>(host.host_bytes), update + 1.5 * use);
    EXPECT_LE(static_cast<double>(host.host_bytes), 1.001 * (update + 2 * use));
    EXPECT_GT(host.step_seconds, kept.step_seconds);
  }
}

TEST(PlanTest, FourteenMillionTokensInAMoment) {
  const auto start = std::chrono::steady_clock::now();
  const Plan plan =
      MakePlan(JobOf({.model = "llama3.1-8b-16-4-256", .length = 14680064, .ranks = 64}), Machine1());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, 2);
  EXPECT_EQ(plan.bound_by, "attention");
  EXPECT_GT(plan.step_seconds, 1000);
}

}  // namespace
}  // namespace longspan
