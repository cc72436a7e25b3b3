// Runs whose activations wait elsewhere than on the device: not a bit of them changes, wherever that is and
// however slow, and the dry run takes what the run takes.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "comm/thread_comm.h"
#include "model/remat_policy.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/runs.h"
#include "support/tiny.h"
#include "train/replica.h"

namespace longspan {
namespace {

using nlohmann::json;
using testing::Outcome;

constexpr int64_t kLayers = 5;  // two tensors of each name are on the device

// What a run computed, to the last bit, and what it reported of its tier.
void OffloadEveryName(TrainConfig& config) {
  config.remat_policy = "custom";
  for (const PlacementKey& key : kPlacementKeys) config.*key.field = "offload";
}

// Slow and uneven: a copy of a millisecond and a half now and then lets everything else pass it.
IoHooks SlowCopies() {
  return {.before_each = [] {
    thread_local int calls = 0;
    std::this_thread::sleep_for(std::chrono::microseconds(++calls % 3 == 0 ? 1500 : 100));
  }};
}

class Offload : public ::testing::Test {
 protected:
  Offload() {
    for (testing::NamedConfig& family : testing::TinyFamilies()) {
      if (family.name != "llama" && family.name != "gemma3") continue;
      if (family.name == "gemma3") family.config.model_type = "gemma3_text";
      family.config.SetNumLayers(kLayers);
      testing::WriteModel(directory_ / family.name, family.config, /*seed=*/7);
    }
    testing::WriteDocuments(directory_ / "data.jsonl", {20, 31, 9, 40, 12, 12, 5, 33, 17, 28, 3},
                            testing::TinyConfig().vocab_size);
    testing::WriteDocuments(directory_ / "held_out.jsonl", {17, 29}, testing::TinyConfig().vocab_size,
                            /*seed=*/2);
    std::filesystem::create_directory(directory_ / "tier");
  }

  TrainConfig Config(const std::string& family, const std::string& dtype, int64_t ranks) const {
    TrainConfig config =
        testing::FiveSteps(directory_ / family, directory_ / "data.jsonl", directory_ / "runs", dtype, ranks);
    config.global_batch_size = 2;
    config.eval_data_path = directory_ / "held_out.jsonl";
    config.eval_interval = 2;
    return config;
  }

  std::vector<json> Train(TrainConfig config, const IoHooks& hooks = {}) {
    config.run_name = fmt::format("run{}", num_runs_++);
    Job job = PrepareJob(config);
    job.io_hooks = hooks;
    last_run_ = testing::TrainQuietly(job);
    return testing::ReadMetrics(last_run_);
  }

  Outcome Run(const TrainConfig& config, const IoHooks& hooks = {}) {
    for (const json& row : Train(config, hooks)) {
      EXPECT_EQ(row.contains("offload_bytes_written"), config.remat_policy != "save_qkv_proj_with_context");
      EXPECT_NE(row.value("offload_bytes_written", 1), 0);
    }
    Outcome outcome = testing::OutcomeOf(last_run_);
    EXPECT_EQ(std::ssize(outcome.losses), config.steps);
    return outcome;
  }

  testing::TemporaryDirectory directory_;
  std::string last_run_;

 private:
  int num_runs_ = 0;
};

TEST_F(Offload, ChangesNoBitWhereverItGoesAndHoweverSlow) {
  for (const std::string family : {"llama", "gemma3"}) {
    for (const std::string dtype : {"float32", "bfloat16"}) {
      for (const int64_t ranks : {1, 2}) {
        const TrainConfig resident = Config(family, dtype, ranks);
        const Outcome wanted = Run(resident);
        EXPECT_NE(wanted.losses[0], wanted.losses[4]);
        TrainConfig config = resident;
        OffloadEveryName(config);
        for (const std::string& where : {std::string(), directory_ / "tier"}) {
          SCOPED_TRACE(fmt::format("{} {} on {} ranks, '{}'", family, dtype, ranks, where));
          config.offload_directory = where;
          EXPECT_TRUE(Run(config) == wanted);
          EXPECT_TRUE(Run(config, SlowCopies()) == wanted) << "slowed";
        }
        TrainConfig preset = resident;
        preset.remat_policy = "minimal_offloaded";
        EXPECT_TRUE(Run(preset) == wanted) << "minimal_offloaded";
      }
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "tier"));
}

TEST_F(Offload, GoesInPassesToo) {
  TrainConfig config = Config("llama", "bfloat16", 2);
  config.max_target_length = 90;
  config.tokens_per_pass = 45;
  const Outcome wanted = Run(config);
  OffloadEveryName(config);
  config.offload_directory = directory_ / "tier";
  EXPECT_TRUE(Run(config, SlowCopies()) == wanted);
}

// Device, host and disk bytes, and what is written.
TEST_F(Offload, TheDryRunTakesWhatTheRunTakes) {
  for (const std::string family : {"llama", "gemma3"}) {
    for (const int64_t ranks : {1, 2, 3}) {
      for (const std::string& where : {std::string(), directory_ / "tier"}) {
        SCOPED_TRACE(fmt::format("{} on {} ranks, '{}'", family, ranks, where));
        TrainConfig config = Config(family, "bfloat16", ranks);
        config.global_batch_size = 1;
        config.remat_policy = "custom";
        config.query_proj = "device";
        config.decoder_layer_input = config.context = config.mlpwo = "offload";
        config.offload_directory = where;
        config.enable_checkpointing = false;
        const Job job = PrepareJob(config);
        RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
          Replica replica(job, MakeCpuBackend(1), world);
          const AbortOnUnwind guard(world);
          LoadModelWeights(job.model_directory, replica.weights());
          MixtureReader reader = job.MakeReader();
          for (int step = 0; step < 3; ++step) {
            replica.weights().ZeroGradients();
            replica.LossAndGradients(reader.Next(), 0.1);
          }
          const DryRun dry = RunDry(job, world.rank());
          for (const auto& [name, bytes] : replica.MemoryByName())
            EXPECT_TRUE(bytes == 0 || bytes == dry.memory.at(name)) << name;
          EXPECT_GT(dry.memory.at("activations in flight"), 0);
          EXPECT_FALSE(dry.memory.contains("activations.context"));
          EXPECT_EQ(replica.HostMemoryByName(), dry.host_memory);
          EXPECT_EQ(replica.DiskByName(), dry.disk);
          EXPECT_TRUE((where.empty() ? dry.disk : dry.host_memory).empty());
          const std::map<std::string, int64_t>& offloaded = where.empty() ? dry.host_memory : dry.disk;
          EXPECT_EQ(offloaded.contains("activations.mlpwo"), family == "gemma3");
          EXPECT_EQ(replica.offload_bytes_written(), 3 * dry.offload_bytes_written);
          // A layer's share of the tier is written once a pass.
          int64_t tier = 0;
          for (const auto& [name, bytes] : offloaded) tier += bytes;
          EXPECT_EQ(dry.offload_bytes_written, tier);
          // Of five layers two are on the device.
          EXPECT_EQ(dry.memory.at("activations in flight") * kLayers, 2 * tier);
        });
      }
    }
  }
}

TEST_F(Offload, AStepReportsWhatItWrites) {
  TrainConfig config = Config("llama", "float32", 2);
  config.remat_policy = "custom";
  config.context = "offload";
  config.global_batch_size = 4;  // micro-steps
  config.eval_interval = -1;
  const int64_t rank = RunDry(PrepareJob(config), 0).offload_bytes_written;
  EXPECT_GT(rank, 0);
  const std::vector<json> rows = Train(config, SlowCopies());
  for (const json& row : rows) {
    EXPECT_EQ(row["offload_bytes_written"], 2 * 4 * rank);
    EXPECT_GE(row["offload_wait_seconds"], 0);
    EXPECT_GE(row["communication_wait_seconds"], 0);
    EXPECT_EQ(row["memory_peak_bytes"], rows[0]["memory_peak_bytes"]);
  }
}

// The disk is full after the first step.
class FullLater final : public FileCalls {
 public:
  mutable std::atomic<int64_t> good_writes = 200;
  ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const override {
    if (--good_writes < 0) return errno = ENOSPC, -1;
    return FileCalls::Write(fd, data, bytes, offset);
  }
};

TEST_F(Offload, ADiskThatIsFullLaterEndsTheRunOnAllRanks) {
  for (const int64_t ranks : {1, 2}) {
    TrainConfig config = Config("llama", "float32", ranks);
    OffloadEveryName(config);
    config.offload_directory = directory_ / "tier";
    const FullLater calls;
    IoHooks hooks = SlowCopies();
    hooks.file_calls = &calls;
    testing::ExpectError(
        {"cannot write", directory_ / "tier", "No space left", "offload_directory"},
        [&] { Train(config, hooks); }, ExitCode::kResource);
    EXPECT_TRUE(std::filesystem::is_empty(directory_ / "tier"));
  }
}

TEST_F(Offload, RefusesADirectoryThatWouldDoNothingOrIsNotThere) {
  TrainConfig config = Config("llama", "float32", 1);
  config.offload_directory = directory_ / "tier";
  testing::ExpectError(
      {"offload_directory", "nothing is offloaded", "minimal_offloaded"}, [&] { PrepareJob(config); },
      ExitCode::kUsage);
  config.remat_policy = "custom";
  config.mlpwo = "offload";
  testing::ExpectError(
      {"offload_directory", "nothing is offloaded", "no layer of this model keeps mlpwo"},
      [&] { PrepareJob(config); }, ExitCode::kUsage);
  OffloadEveryName(config);
  PrepareJob(config);
  config.offload_directory = directory_ / "data.jsonl";
  testing::ExpectError(
      {"offload_directory", "data.jsonl", "not a folder"}, [&] { PrepareJob(config); }, ExitCode::kUsage);
}

}  // namespace
}  // namespace longspan
