#include "train/memory_ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "comm/dry_comm.h"
#include "support/expect_error.h"
#include "train/memory_budget.h"
#include "train/placement.h"
#include "train/replica.h"

namespace longspan {
namespace {

using testing::ExpectError;

TrainConfig Config(const std::string& model, int64_t length, int64_t ranks) {
  TrainConfig config;
  config.model_path = model;
  config.max_target_length = length;
  config.ranks = ranks;
  config.threads_per_rank = 1;
  return config;
}

Job JobOf(const TrainConfig& config) { return PrepareJobWithoutText(OpenModelAlone(config)); }

// What a rank takes, whether this machine has it or not.
MemoryFit FitOf(const TrainConfig& config) {
  const DryRun dry = RunDryOfLargest(JobOf(config));
  return {TotalBytes(dry.memory), TotalBytes(dry.host_memory), {}};
}

const MemoryRung& RungOf(std::string_view name) {
  for (const MemoryRung& rung : MemoryLadder())
    if (rung.name == name) return rung;
  ADD_FAILURE() << "no rung " << name;
  return MemoryLadder().front();
}

// Down to the rung after which attention is computed again each takes less of the device than the one before,
// and so do those that follow; the last of these takes the least of all.
TEST(MemoryLadder, EachRungTakesLessOfTheDevice) {
  for (const char* model : {"tiny-4-layers", "llama3.2-1b", "llama3.1-8b-16-4-256"}) {
    for (const int64_t ranks : {1, 8}) {
      for (const bool shard : {false, true}) {
        if (shard && ranks == 1) continue;
        TrainConfig config = Config(model, 131072, ranks);
        config.shard_parameters = shard;
        config.enable_checkpointing = false;  // whose snapshot takes the host's memory on every rung
        SCOPED_TRACE(fmt::format("{} on {}, shards: {}", model, ranks, shard));
        const RungChoice choice = ChooseRung(config, FitOf);
        ASSERT_EQ(choice.tried.size(), MemoryLadder().size());
        EXPECT_EQ(choice.chosen, 0u);  // all fit
        const MemoryFit* least = nullptr;
        for (size_t i = 0; i < choice.tried.size(); ++i) {
          const auto& [rung, fit] = choice.tried[i];
          if (i > 0 && rung->name != "input") {
            EXPECT_LT(fit.device_bytes, choice.tried[i - 1].fit.device_bytes) << rung->name;
          }
          if (least == nullptr || fit.device_bytes < least->device_bytes) least = &fit;
          EXPECT_EQ(fit.host_bytes > 0, rung->Keys().find("offload") != std::string::npos) << rung->name;
        }
        EXPECT_EQ(least, &choice.tried.back().fit);
        EXPECT_LT(FitOf(WithRung(config, RungOf("input offloaded"))).host_bytes,
                  FitOf(WithRung(config, RungOf("context, optimizer, input offloaded"))).host_bytes);
      }
    }
  }
}

TEST(MemoryLadder, TheFirstRungThatFitsIsTaken) {
  const TrainConfig config = Config("tiny-4-layers", 16384, 2);
  const RungChoice all = ChooseRung(config, FitOf);
  for (size_t i = 0; i < all.tried.size(); ++i) {
    if (all.tried[i].rung->name == "input") break;  // whatever fits on it fits on one before
    TrainConfig limited = config;
    limited.device_memory_limit = std::to_string(all.tried[i].fit.device_bytes);
    const RungChoice choice = ChooseRung(limited, [](const TrainConfig& c) { return FitHere(JobOf(c)); });
    EXPECT_EQ(choice.chosen, i);
    for (size_t j = 0; j < choice.tried.size(); ++j) {
      EXPECT_EQ(choice.tried[j].fit.fits(), all.tried[j].fit.device_bytes <= all.tried[i].fit.device_bytes);
      EXPECT_EQ(choice.tried[j].fit.device_bytes, all.tried[j].fit.device_bytes);
    }
    const Job job = JobOf(WithRung(limited, choice.rung()));
    EXPECT_LE(TotalBytes(RunDryOfLargest(job).memory), job.device_memory_limit());
  }
  TrainConfig too_small = config;
  too_small.device_memory_limit = "1KiB";
  const RungChoice none = ChooseRung(too_small, [](const TrainConfig& c) { return FitHere(JobOf(c)); });
  EXPECT_FALSE(none.tried[none.chosen].fit.fits());
  EXPECT_EQ(none.rung().name, MemoryLadder().back().name);  // takes least
}

// A rung is what its keys say, and the keys that lead there from any other lead there.
TEST(MemoryLadder, KeysLeadThere) {
  const auto with_words = [](TrainConfig config, std::string words) {
    words += " ";
    while (!words.empty()) {
      const std::string word = words.substr(0, words.find(' '));
      words.erase(0, word.size() + 1);
      if (word.empty()) continue;
      const std::string name = word.substr(0, word.find('=')), value = word.substr(word.find('=') + 1);
      if (name == "remat_policy") config.remat_policy = value;
      if (name == "offload_directory") config.offload_directory = value;
      for (const PlacementKey& key : kPlacementKeys)
        if (RowOf(key.id).name == name) config.*key.field = value;
    }
    return config;
  };
  std::vector<TrainConfig> starts;
  for (const MemoryRung& rung : MemoryLadder()) {
    TrainConfig config = Config("tiny", 256, 1);
    config.offload_directory = ::testing::TempDir();
    starts.push_back(WithRung(config, rung));
    EXPECT_EQ(JobOf(with_words(Config("tiny", 256, 1), rung.Keys())).activations,
              JobOf(WithRung(Config("tiny", 256, 1), rung)).activations);
  }
  starts.push_back(Config("tiny", 256, 1));
  starts.back().remat_policy = "custom";
  starts.back().mlpwi_0 = starts.back().query_proj = "device";
  for (const TrainConfig& start : starts) {
    for (const MemoryRung& rung : MemoryLadder()) {
      const TrainConfig wanted = WithRung(start, rung);
      const std::string words = PlacementChanges(JobOf(start).config, wanted);
      const Job job = JobOf(with_words(start, words));
      EXPECT_EQ(job.activations, JobOf(wanted).activations) << words;
      EXPECT_EQ(job.config.offload_directory, wanted.offload_directory) << words;
    }
  }
}

// Heads and shards that don't divide evenly: no rank takes more than the one that is said to.
TEST(MemoryBudget, TheLargestRankIsFound) {
  for (const char* strategy : {"ring", "ulysses", "usp"}) {
    for (const bool shard : {false, true}) {
      TrainConfig config = Config("smollm2-135m", 60000, 6);  // 9 query and 3 KV heads
      config.context_parallel_strategy = {{"", strategy}};
      config.context_parallelism = std::string(strategy) == "usp" ? 3 : 0;
      config.shard_parameters = shard;
      config.data_parallelism = 1;
      const Job job = JobOf(config);
      int64_t most = 0;
      for (int rank = 0; rank < job.mesh.ranks(); ++rank)
        most = std::max(most, TotalBytes(RunDry(job, rank).memory));
      EXPECT_EQ(TotalBytes(RunDryOfLargest(job).memory), most) << strategy << " " << shard;
      if (std::string(strategy) != "ulysses" || shard) continue;
      EXPECT_GT(most, TotalBytes(RunDry(job, 0).memory)) << "rank 0 has one head, another two";
    }
  }
}

TEST(MemoryBudget, ALimitIsANumberOfBytes) {
  TrainConfig config = Config("tiny", 256, 1);
  EXPECT_EQ(JobOf(config).device_memory_limit(), 0);
  config.device_memory_limit = "1.5GiB";
  EXPECT_EQ(JobOf(config).device_memory_limit(), int64_t{3} << 29);
  for (const char* text : {"0", "-1GiB", "24Gib", "much"}) {
    config.device_memory_limit = text;
    ExpectError(
        {"device_memory_limit", text, "24GiB"}, [&] { JobOf(config); }, ExitCode::kUsage);
  }
}

// The dry run says beforehand what the arena then holds the run to.
TEST(MemoryBudget, AStepThatTakesMoreFails) {
  const Job job = JobOf(Config("tiny", 512, 1));
  const std::unique_ptr<Comm> world = MakeDryComm(0, 1);
  Replica replica(job, MakeDryBackend(1), *world);
  const int64_t needed = TotalBytes(RunDry(job, 0).memory) - SequenceBytes(job);
  Batch batch;
  batch.documents = {{0, 512}};
  replica.LimitMemory(needed);
  replica.LossAndGradients(batch, 1.0);
  replica.weights().ZeroGradients();
  replica.LimitMemory(needed - 1);
  ExpectError(
      {"out of device memory"}, [&] { replica.LossAndGradients(batch, 1.0); }, ExitCode::kResource);
  ExpectError(
      {"out of device memory", "of 1000"}, [&] { replica.LimitMemory(1000); }, ExitCode::kResource);
}

}  // namespace
}  // namespace longspan
