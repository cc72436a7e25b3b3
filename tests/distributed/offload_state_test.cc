// Runs whose weights and optimizer state wait elsewhere than on the device: not a bit of them changes,
// wherever that is and however slow, and the dry run takes what the run takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/dry_comm.h"
#include "comm/thread_comm.h"
#include "support/expect_error.h"
#include "support/failing_disk.h"
#include "support/files.h"
#include "support/runs.h"
#include "support/tiny.h"
#include "train/optimizer.h"
#include "train/replica.h"
#include "train/trainer.h"

namespace longspan {
namespace {

using nlohmann::json;
using testing::ExpectError;
using testing::ExpectSameRun;

// Units of 1 to 6 blocks of 4,096 elements, the last of which are not full; five or more units.
ModelConfig Model(bool tied) {
  ModelConfig config = testing::TiedTinyConfig(tied);
  config.vocab_size = 400;
  config.intermediate_size = 260;
  config.SetNumLayers(tied ? 3 : 4);
  return config;
}

struct RanksOfRun {
  int ranks, data, fsdp;
  bool sharded;
  std::string ToString() const {
    return fmt::format("{} ranks, data {} × fsdp {}, {}", ranks, data, fsdp, sharded ? "sharded" : "whole");
  }
};
constexpr RanksOfRun kRanks[] = {{1, 1, 1, false}, {2, 1, 1, false}, {2, 1, 1, true}, {2, 2, 1, false},
                                 {4, 2, 1, false}, {4, 2, 1, true},  {4, 1, 2, true}, {8, 1, 1, true}};

// Slow and uneven: a transfer of most of a millisecond now and then lets everything else pass it.
IoHooks SlowCopies() {
  return {.before_each = [] {
    thread_local int calls = 0;
    std::this_thread::sleep_for(std::chrono::microseconds(++calls % 3 == 0 ? 700 : 50));
  }};
}

// What tensors of so many bytes an element take of all units, as they lie in a tier, and in the two places in
// which the units take turns.
std::pair<int64_t, int64_t> StateBytes(const ShardedWeights& weights, int64_t element_bytes) {
  int64_t all = 0, places[2] = {0, 0};
  for (int unit = 0; unit < weights.table().num_units(); ++unit) {
    const int64_t bytes = Tier::InBlocks(element_bytes * weights.Kept(unit).size());
    all += bytes;
    places[unit % 2] = std::max(places[unit % 2], bytes);
  }
  return {all, places[0] + places[1]};
}

class OffloadState : public ::testing::Test {
 protected:
  OffloadState() {
    for (const bool tied : {false, true}) testing::WriteModel(ModelPath(tied), Model(tied), /*seed=*/7);
    testing::WriteDocuments(directory_ / "data.jsonl", {7, 20, 3, 11, 70, 16, 25, 9, 14}, 400);
    testing::WriteDocuments(directory_ / "bytes.jsonl", {20, 31, 9, 40}, 256);
    testing::WriteDocuments(directory_ / "held_out.jsonl", {28, 29, 30, 27, 30}, 400, /*seed=*/2);
    std::filesystem::create_directory(directory_ / "tier");
  }

  std::string ModelPath(bool tied) const { return directory_ / (tied ? "tied" : "untied"); }

  // Five steps in which each moment and clipping count, with evaluations between them.
  TrainConfig Config(const RanksOfRun& r, const std::string& dtype, bool tied = false) const {
    TrainConfig config =
        testing::PlainConfig(ModelPath(tied), directory_ / "data.jsonl", directory_ / "runs");
    config.run_name = fmt::format("run{}", num_runs_++);
    config.eval_data_path = directory_ / "held_out.jsonl";
    config.eval_interval = 2;
    config.dtype = dtype;
    config.max_target_length = 30;
    config.learning_rate = 1e-2;
    config.warmup_steps_fraction = 0.3;
    config.gradient_clipping_threshold = 0.5;
    config.steps = 5;
    config.ranks = r.ranks;
    config.data_parallelism = r.data;
    config.fsdp_parallelism = r.fsdp;
    config.shard_parameters = r.sharded;
    return config;
  }

  std::string Train(const TrainConfig& config, const IoHooks& hooks = {}) const {
    Job job = PrepareJob(config);
    job.io_hooks = hooks;
    return testing::TrainQuietly(job);
  }

  testing::TemporaryDirectory directory_;

 private:
  mutable int num_runs_ = 0;
};

// What may be offloaded, as keys.
struct Keys {
  bool optimizer, parameters;
  void Set(TrainConfig& config) const {
    config.optimizer_memory_host_offload = optimizer;
    config.parameter_memory_host_offload = parameters;
  }
  std::string ToString() const {
    return std::string(optimizer ? "optimizer" : "") + (parameters ? "parameters" : "");
  }
};
constexpr Keys kKeys[] = {{true, false}, {false, true}, {true, true}};

TEST_F(OffloadState, ChangesNoBitWhereverItGoesAndHoweverSlow) {
  for (const RanksOfRun& ranks : kRanks) {
    for (const std::string dtype : {"float32", "bfloat16"}) {
      for (const bool accumulates : {false, true}) {
        if (accumulates && dtype == "float32" && ranks.ranks > 2) continue;
        TrainConfig resident = Config(ranks, dtype, /*tied=*/accumulates);
        resident.global_batch_size = (accumulates ? 2 : 1) * ranks.data * ranks.fsdp;
        const std::string wanted = Train(resident);
        const std::vector<json> metrics = testing::ReadMetrics(wanted);
        ASSERT_EQ(metrics.size(), 5u);
        EXPECT_NE(metrics[0]["loss"], metrics[4]["loss"]);
        for (const Keys& keys : kKeys) {
          for (const bool on_disk : {false, true}) {
            const bool many = ranks.ranks > 2;  // of which one place will do
            if (many && on_disk == accumulates) continue;
            SCOPED_TRACE(fmt::format("{}, {}, {}, {}, {}", ranks.ToString(), dtype,
                                     accumulates ? "micro-steps" : "one micro-step", keys.ToString(),
                                     on_disk ? "disk" : "host memory"));
            TrainConfig config = Config(ranks, dtype, accumulates);
            config.global_batch_size = resident.global_batch_size;
            keys.Set(config);
            if (on_disk) config.offload_directory = directory_ / "tier";
            // Every other one is slowed.
            const bool slowed = on_disk == accumulates || many;
            ExpectSameRun(Train(config, slowed ? SlowCopies() : IoHooks{}), wanted);
          }
        }
      }
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "tier"));
}

// Beside activations that are offloaded as well, in passes.
TEST_F(OffloadState, SharesTheTierWithActivations) {
  for (const RanksOfRun& ranks : {RanksOfRun{1, 1, 1, false}, RanksOfRun{4, 1, 2, true}}) {
    TrainConfig resident = Config(ranks, "bfloat16");
    resident.max_target_length = 90;
    resident.tokens_per_pass = 70;
    resident.remat_policy = "minimal";
    const std::string wanted = Train(resident);
    for (const Keys& keys : kKeys) {
      SCOPED_TRACE(ranks.ToString() + ", " + keys.ToString());
      TrainConfig config = resident;
      config.run_name += keys.ToString();
      config.remat_policy = "minimal_offloaded";
      config.offload_directory = directory_ / "tier";
      keys.Set(config);
      ExpectSameRun(Train(config, SlowCopies()), wanted);
    }
  }
}

// A checkpoint does not know where the state of its run was.
TEST_F(OffloadState, ARunGoesOnOffloadedOrNot) {
  for (const RanksOfRun& ranks : {RanksOfRun{1, 1, 1, false}, RanksOfRun{4, 1, 2, true}}) {
    const std::string straight = Train(Config(ranks, "bfloat16"));
    for (const Keys& keys : kKeys) {
      for (const bool offloaded_first : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", ranks.ToString(), keys.ToString(), offloaded_first));
        TrainConfig first = Config(ranks, "bfloat16"), then = Config(ranks, "bfloat16");
        keys.Set(offloaded_first ? first : then);
        first.steps = 3;
        first.learning_rate_schedule_steps = 5;
        then.run_name = first.run_name;
        then.resume = "auto";
        Train(first, SlowCopies());
        ExpectSameRun(Train(then, SlowCopies()), straight);
      }
    }
  }
}

// The weights of SGD go there as well.
TEST_F(OffloadState, ChangesNoBitOfSgd) {
  for (const RanksOfRun& ranks : {RanksOfRun{1, 1, 1, false}, RanksOfRun{2, 1, 1, true}}) {
    for (const std::string dtype : {"float32", "bfloat16"}) {
      SCOPED_TRACE(ranks.ToString() + ", " + dtype);
      TrainConfig config = Config(ranks, dtype);
      config.opt_type = "sgd";
      const std::string wanted = Train(config);
      config.run_name += "offloaded";
      config.parameter_memory_host_offload = true;
      ExpectSameRun(Train(config, SlowCopies()), wanted);
    }
  }
}

// From scratch as from a file.
TEST_F(OffloadState, InitialWeightsAreTheSame) {
  for (const RanksOfRun& ranks : {RanksOfRun{1, 1, 1, false}, RanksOfRun{2, 1, 1, true}}) {
    TrainConfig config = Config(ranks, "bfloat16");
    config.model_path = "tiny";
    config.data_path = {{"", directory_ / "bytes.jsonl"}};
    config.steps = 1;
    config.eval_interval = -1;
    const std::string wanted = Train(config);
    for (const Keys& keys : kKeys) {
      TrainConfig offloaded = config;
      offloaded.run_name += keys.ToString();
      keys.Set(offloaded);
      ExpectSameRun(Train(offloaded, SlowCopies()), wanted);
    }
  }
}

// What a step of one micro-step reads from the tier.
struct DryStep {
  DryStep(const Job& job, int rank) {
    const std::unique_ptr<Comm> world = MakeDryComm(rank, job.mesh.ranks());
    Replica replica(job, MakeDryBackend(1), *world);
    Batch batch;
    batch.documents = {{0, job.pass_length()}};
    replica.LossAndGradients(batch, 1.0);
    Optimizer optimizer(job.config, replica.backend(), replica.weights());
    optimizer.Update(0.01, optimizer.GradientNorm());
    bytes_read = replica.offload_bytes_read();
  }
  int64_t bytes_read = 0;
};

// Device, host and disk bytes, and what a micro-step and an update write and read.
TEST_F(OffloadState, TheDryRunTakesWhatTheRunTakes) {
  for (const RanksOfRun& ranks : kRanks) {
    for (const std::string dtype : {"float32", "bfloat16"}) {
      for (const Keys& keys : kKeys) {
        for (const std::string& where : {std::string(), directory_ / "tier"}) {
          SCOPED_TRACE(fmt::format("{}, {}, {}, '{}'", ranks.ToString(), dtype, keys.ToString(), where));
          TrainConfig config = Config(ranks, dtype, /*tied=*/dtype == "float32");
          keys.Set(config);
          config.offload_directory = where;
          config.context = "offload";
          config.remat_policy = "custom";
          const Job job = PrepareJob(config);
          RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
            Replica replica(job, MakeCpuBackend(1), world);
            Optimizer optimizer(job.config, replica.backend(), replica.weights());
            const AbortOnUnwind guard(world);
            LoadModelWeights(job.model_directory, replica.weights());
            SequenceReader reader = job.MakeEvalReader();
            DryRun dry = RunDry(job, world.rank());
            const DryStep dry_step(job, world.rank());
            for (int step = 0; step < 3; ++step) {
              const int64_t read = replica.offload_bytes_read();
              const int64_t before = replica.offload_bytes_written();
              const Comm::Traffic sent = world.traffic();
              const int64_t of_state = replica.weights().state_bytes_written();
              StepBatches batches;
              batches.mine.push_back(reader.Next());
              batches.passes = {1};
              batches.num_targets = batches.mine[0].num_targets;
              TrainStep(replica, optimizer, batches, 0.01, step + 1);
              EXPECT_EQ(world.traffic().bytes_sent - sent.bytes_sent, dry.traffic.bytes_sent);
              EXPECT_EQ(replica.offload_bytes_written() - before, dry.offload_bytes_written);
              EXPECT_EQ(replica.weights().state_bytes_written() - of_state, dry.update_bytes_written);
              EXPECT_EQ(replica.offload_bytes_read() - read, dry_step.bytes_read);
            }
            replica.Loss(reader.Next());
            dry.memory.erase("sequences");
            std::map<std::string, int64_t> real = replica.MemoryByName();
            for (auto* memory : {&real, &dry.memory})
              std::erase_if(*memory, [](const auto& entry) { return entry.second == 0; });
            EXPECT_EQ(real, dry.memory);
            auto tier = where.empty() ? dry.host_memory : dry.disk;
            tier.erase("checkpoint_snapshot");
            EXPECT_EQ(replica.HostMemoryByName(), dry.host_memory);
            EXPECT_EQ(replica.DiskByName(), dry.disk);
            EXPECT_EQ(where.empty() ? dry.disk.size() : dry.host_memory.size(), where.empty() ? 0u : 1u);
            const auto bytes_of = [](const std::map<std::string, int64_t>& bytes, const char* name) {
              return bytes.contains(name) ? bytes.at(name) : 0;
            };
            const bool has_compute = dtype == "bfloat16";
            const auto [all, in_flight] = StateBytes(replica.weights(), 4);
            const auto [compute, compute_in_flight] = StateBytes(replica.weights(), 2);
            EXPECT_EQ(bytes_of(tier, "optimizer"), keys.optimizer ? 2 * all : 0);
            EXPECT_EQ(bytes_of(real, "optimizer in flight"), keys.optimizer ? 2 * in_flight : 0);
            EXPECT_EQ(bytes_of(real, "optimizer") > 0, !keys.optimizer && all > 0);
            EXPECT_EQ(bytes_of(tier, "weights"), keys.parameters ? all : 0);
            EXPECT_EQ(bytes_of(tier, "weights.compute"), keys.parameters && has_compute ? compute : 0);
            EXPECT_EQ(bytes_of(real, "weights") > 0, !keys.parameters && all > 0);
            EXPECT_EQ(bytes_of(real, "weights.compute") > 0, !keys.parameters && has_compute && all > 0);
            // Of an update; ranks that have all of a unit fetch that here as well.
            const int64_t update = in_flight + (has_compute ? compute_in_flight : 0);
            EXPECT_EQ(bytes_of(real, "weights in flight") >= update, keys.parameters || update == 0);
            EXPECT_EQ(bytes_of(real, "weights in flight") == update,
                      !keys.parameters ? update == 0 : ranks.sharded);
          });
        }
      }
    }
  }
}

TEST_F(OffloadState, AStepReportsWhatItWrites) {
  TrainConfig config = Config({2, 1, 1, true}, "float32");
  config.global_batch_size = 3;  // micro-steps
  config.eval_interval = -1;
  config.optimizer_memory_host_offload = config.parameter_memory_host_offload = true;
  const Job job = PrepareJob(config);
  int64_t written = 0;
  for (const int rank : {0, 1}) {
    const DryRun dry = RunDry(job, rank);
    EXPECT_EQ(dry.offload_bytes_written, dry.update_bytes_written);
    EXPECT_EQ(dry.update_bytes_written, dry.host_memory.at("optimizer") + dry.host_memory.at("weights"));
    written += dry.update_bytes_written;
  }
  for (const json& row : testing::ReadMetrics(Train(config, SlowCopies()))) {
    EXPECT_EQ(row["offload_bytes_written"], written);
    EXPECT_GT(row["offload_wait_seconds"], 0);
    EXPECT_GE(row["communication_wait_seconds"], 0);
  }
}

TEST_F(OffloadState, ADiskThatFailsLaterEndsTheRunOnAllRanks) {
  for (const RanksOfRun& ranks : {RanksOfRun{1, 1, 1, false}, RanksOfRun{2, 1, 1, true}}) {
    for (const Keys& keys : kKeys) {
      TrainConfig config = Config(ranks, "bfloat16");
      keys.Set(config);
      config.offload_directory = directory_ / "tier";
      IoHooks hooks = SlowCopies();
      const testing::FailingDisk full;
      full.good_writes = 30 * ranks.ranks;
      hooks.file_calls = &full;
      ExpectError(
          {"cannot write", directory_ / "tier", "No space left", "offload_directory"},
          [&] { Train(config, hooks); }, ExitCode::kResource);
      const testing::FailingDisk broken;
      broken.good_reads = 30 * ranks.ranks;
      hooks.file_calls = &broken;
      config.run_name += "again";
      ExpectError(
          {"cannot read", directory_ / "tier", "Input/output error"}, [&] { Train(config, hooks); },
          ExitCode::kResource);
      EXPECT_TRUE(std::filesystem::is_empty(directory_ / "tier"));
    }
  }
}

TEST_F(OffloadState, WhatWouldDoNothingIsRefused) {
  TrainConfig config = Config({1, 1, 1, false}, "float32");
  config.offload_directory = directory_ / "tier";
  ExpectError(
      {"offload_directory", "nothing is offloaded", "optimizer_memory_host_offload=true"},
      [&] { PrepareJob(config); }, ExitCode::kUsage);
  config.optimizer_memory_host_offload = true;
  PrepareJob(config);
  config.opt_type = "sgd";
  ExpectError(
      {"optimizer_memory_host_offload", "opt_type sgd has no state"}, [&] { PrepareJob(config); },
      ExitCode::kUsage);
  config.optimizer_memory_host_offload = false;
  config.parameter_memory_host_offload = true;
  PrepareJob(config);
}

}  // namespace
}  // namespace longspan
