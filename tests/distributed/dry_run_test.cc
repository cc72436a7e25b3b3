// The dry run is the run: over sampled configurations every byte that a rank's memory holds, by name, and
// every message that it sends in whole steps are what its dry run says.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/thread_comm.h"
#include "core/work_log.h"
#include "model/remat_policy.h"
#include "support/files.h"
#include "support/runs.h"
#include "support/tiny.h"
#include "train/replica.h"

namespace longspan {
namespace {

constexpr size_t kSamples = 30;
constexpr uint64_t kSeed = 7;

// Each value as often as the others, but for one, in random order.
template <class T>
std::vector<T> Deal(const char* axis, const std::vector<T>& values) {
  std::vector<T> dealt;
  for (size_t i = 0; i < kSamples; ++i) dealt.push_back(values[i % values.size()]);
  const CounterRandom random(kSeed, axis);
  for (size_t i = kSamples - 1; i > 0; --i) std::swap(dealt[i], dealt[random.Below(i + 1, i)]);
  return dealt;
}

// Whether weights are sharded, and groups of ranks with sequences of their own.
struct Weights {
  bool sharded;
  int64_t data, fsdp;
  std::string Name() const {
    return fmt::format("{} data {} fsdp {}", sharded ? "sharded" : "whole", data, fsdp);
  }
};
const std::vector<Weights> kWeights = {{false, 1, 1}, {false, 2, 1}, {false, 3, 1}, {true, 1, 1},
                                       {true, 2, 1},  {true, 1, 2},  {true, 2, 2}};
struct Heads {
  int64_t query, kv;  // groups of several, one and all of the query heads; odd numbers
  std::string Name() const { return fmt::format("{} on {} heads", query, kv); }
};
const std::vector<Heads> kHeads = {{8, 2}, {6, 1}, {4, 4}, {5, 5}, {7, 1}, {6, 3}};

const std::vector<std::string> kStrategies = {"all_gather", "ring", "ulysses", "usp"};
const std::vector<std::string> kLayouts = {"contiguous", "zigzag", "striped", "auto"};
const std::vector<std::string> kDocuments = {"one", "equal", "unequal", "passes"};
const std::vector<std::string> kFamilies = {"llama", "mistral", "qwen3", "gemma3", "phi3"};
const std::vector<std::string> kDtypes = {"float32", "bfloat16"};
const std::vector<std::string> kOptimizers = {"adamw", "sgd"};
const std::vector<int64_t> kRanks = {1, 2, 3, 4, 5, 6, 7, 8};
const std::vector<int64_t> kMicroSteps = {1, 2, 3};

std::vector<std::string> Policies() {
  std::vector<std::string> policies = {"custom to the host", "custom to a disk"};
  for (const RematPolicyRow& row : RematPolicyTable()) policies.emplace_back(row.name);
  return policies;
}

struct Sample {
  std::string strategy, layout, policy, documents, family, dtype, optimizer;
  Weights weights;
  Heads heads;
  int64_t ranks, micro_steps;
  bool evaluates;

  // "name value" of each axis.
  std::vector<std::string> Values() const {
    return {"strategy " + strategy,
            "layout " + layout,
            "policy " + policy,
            "documents " + documents,
            "family " + family,
            "dtype " + dtype,
            "optimizer " + optimizer,
            weights.Name(),
            heads.Name(),
            fmt::format("ranks {}", ranks),
            fmt::format("micro-steps {}", micro_steps),
            evaluates ? "evaluates" : "does not evaluate"};
  }
  std::string ToString() const { return fmt::format("{}", fmt::join(Values(), ", ")); }
};

std::vector<Sample> Samples() {
  const auto strategies = Deal("strategy", kStrategies), layouts = Deal("layout", kLayouts),
             policies = Deal("policy", Policies()), documents = Deal("documents", kDocuments),
             families = Deal("family", kFamilies), dtypes = Deal("dtype", kDtypes),
             optimizers = Deal("optimizer", kOptimizers);
  const auto heads = Deal("heads", kHeads);
  const auto ranks = Deal("ranks", kRanks), micro_steps = Deal("micro-steps", kMicroSteps);
  const auto evaluates = Deal("evaluates", std::vector<int>{0, 1});
  std::vector<int> times_taken(kWeights.size());
  std::vector<Sample> samples;
  for (size_t i = 0; i < kSamples; ++i) {
    Sample sample = {.strategy = strategies[i],
                     .layout = layouts[i],
                     .policy = policies[i],
                     .documents = documents[i],
                     .family = families[i],
                     .dtype = dtypes[i],
                     .optimizer = optimizers[i],
                     .weights = {},
                     .heads = heads[i],
                     .ranks = ranks[i],
                     .micro_steps = micro_steps[i],
                     .evaluates = evaluates[i] == 1};
    // Of those that divide the ranks, what was taken least; ulysses has no more ranks than heads.
    std::pair<int, size_t> least = {std::numeric_limits<int>::max(), 0};
    for (size_t w = 0; w < kWeights.size(); ++w)
      if (sample.ranks % (kWeights[w].data * kWeights[w].fsdp) == 0)
        least = std::min(least, {times_taken[w], w});
    ++times_taken[least.second];
    sample.weights = kWeights[least.second];
    const int64_t sharing = sample.ranks / (sample.weights.data * sample.weights.fsdp);
    if (sample.strategy == "ulysses" && sharing > sample.heads.query) sample.heads = kHeads[0];
    samples.push_back(sample);
  }
  return samples;
}

TEST(SamplesOfTheDryRun, HaveEveryValueOfEveryAxis) {
  std::set<std::string> seen;
  for (const Sample& sample : Samples())
    for (const std::string& value : sample.Values()) seen.insert(value);
  std::vector<std::string> wanted = {"evaluates", "does not evaluate"};
  const auto add = [&](const char* axis, const std::vector<std::string>& values) {
    for (const std::string& value : values) wanted.push_back(fmt::format("{} {}", axis, value));
  };
  add("strategy", kStrategies);
  add("layout", kLayouts);
  add("policy", Policies());
  add("documents", kDocuments);
  add("family", kFamilies);
  add("dtype", kDtypes);
  add("optimizer", kOptimizers);
  for (const Weights& weights : kWeights) wanted.push_back(weights.Name());
  for (const Heads& heads : kHeads) wanted.push_back(heads.Name());
  for (const int64_t ranks : kRanks) wanted.push_back(fmt::format("ranks {}", ranks));
  for (const int64_t n : kMicroSteps) wanted.push_back(fmt::format("micro-steps {}", n));
  for (const std::string& value : wanted) EXPECT_TRUE(seen.contains(value)) << value;
  EXPECT_EQ(seen.size(), wanted.size());
}

using Bytes = std::map<std::string, int64_t>;

// What one rank of a run took.
struct Taken {
  Bytes memory, host_memory, disk;
  std::vector<Comm::Traffic> traffic;  // of each step
  std::vector<int64_t> offload_bytes_written;
};

int64_t Total(const Bytes& bytes) {
  int64_t total = 0;
  for (const auto& [name, n] : bytes) total += n;
  return total;
}

Bytes NonZero(Bytes bytes) {
  std::erase_if(bytes, [](const auto& entry) { return entry.second == 0; });
  return bytes;
}

class DryRuns : public ::testing::Test {
 protected:
  static constexpr int64_t kDocument = 48;  // of those that are equal; five a sequence, two a pass

  DryRuns() {
    for (const testing::NamedConfig& family : testing::TinyFamilies()) families_[family.name] = family.config;
    families_["gemma3"].model_type = "gemma3_text";
    families_["qwen3"].model_type = "qwen3";
    families_["mistral"].model_type = "mistral";
    families_["phi3"].model_type = "phi3";
    std::filesystem::create_directory(directory_ / "tier");
    const int64_t vocab = testing::TinyConfig().vocab_size;
    testing::WriteDocuments(directory_ / "one.jsonl", std::vector<int64_t>(8, 317), vocab);
    testing::WriteDocuments(directory_ / "equal.jsonl", std::vector<int64_t>(80, kDocument), vocab);
    testing::WriteDocuments(directory_ / "unequal.jsonl", {20, 131, 9, 240, 12, 77, 5, 33, 170, 228, 3, 61},
                            vocab);
  }

  // Writes its model as well.
  TrainConfig ConfigOf(const Sample& sample, size_t index) const {
    ModelConfig model = families_.at(sample.family);
    model.SetNumLayers(5);  // of which two are on the device while the others are offloaded
    model.num_attention_heads = sample.heads.query;
    model.num_key_value_heads = sample.heads.kv;
    const std::string path = directory_ / fmt::format("model{}", index);
    testing::WriteModel(path, model, /*seed=*/3);

    const bool has_equal = sample.documents == "equal" || sample.documents == "passes";
    const std::string data = directory_ / ((has_equal ? "equal" : sample.documents) + ".jsonl");
    TrainConfig config = testing::PlainConfig(path, data, directory_ / "runs");
    config.run_name = fmt::format("run{}", index);
    config.enable_checkpointing = index % 2 == 0;  // what it takes; nothing is saved
    config.steps = 2;
    config.ranks = sample.ranks;
    config.threads_per_rank = sample.ranks == 1 ? 2 : 1;
    config.max_target_length = has_equal ? 5 * kDocument : 317;
    if (sample.documents == "passes") config.tokens_per_pass = 2 * kDocument + 10;
    config.mlp_chunk_length = 20;
    config.loss_chunk_length = 14;
    config.stripe_length = 16;
    config.dtype = sample.dtype;
    config.opt_type = sample.optimizer;
    config.context_parallel_strategy = {{"", sample.strategy}};
    config.context_parallel_layout = sample.layout;
    config.shard_parameters = sample.weights.sharded;
    config.data_parallelism = sample.weights.data;
    config.fsdp_parallelism = sample.weights.fsdp;
    config.global_batch_size = sample.micro_steps * sample.weights.data * sample.weights.fsdp;
    if (sample.policy.starts_with("custom")) {
      config.remat_policy = "custom";
      config.decoder_layer_input = config.context = "offload";
      config.key_proj = "device";
      if (sample.policy == "custom to a disk") config.offload_directory = directory_ / "tier";
    } else {
      config.remat_policy = sample.policy;
    }
    if (sample.evaluates) {
      config.eval_data_path = data;
      config.eval_interval = 1;
      config.eval_steps = sample.weights.data * sample.weights.fsdp;
    }
    return config;
  }

  testing::TemporaryDirectory directory_;
  std::map<std::string, ModelConfig> families_;
};

// Whole steps of one rank, whose group takes every so many-th sequence.
Taken RunSteps(const Job& job, Comm& world) {
  Replica replica(job, MakeCpuBackend(static_cast<int>(job.config.threads_per_rank)), world);
  const AbortOnUnwind guard(world);
  LoadModelWeights(job.model_directory, replica.weights());
  Optimizer optimizer(job.config, replica.backend(), replica.weights());
  MixtureReader reader = job.MakeReader();
  Taken taken;
  for (int64_t step = 1; step <= job.config.steps; ++step) {
    replica.backend().arena().ResetPeak();
    StepBatches batches;
    for (int64_t i = 0; i < job.config.global_batch_size; ++i) {
      Batch batch = reader.Next();
      batches.num_targets += batch.num_targets;
      if (i % job.mesh.groups() == replica.mesh().group()) batches.mine.push_back(std::move(batch));
    }
    for (const Batch& batch : batches.mine) batches.passes.push_back(replica.NumPasses(batch));
    const Comm::Traffic before = world.traffic();
    const int64_t written = replica.offload_bytes_written();
    TrainStep(replica, optimizer, batches, 1e-3, step);
    taken.traffic.push_back({.bytes_sent = world.traffic().bytes_sent - before.bytes_sent,
                             .messages_sent = world.traffic().messages_sent - before.messages_sent});
    taken.offload_bytes_written.push_back(replica.offload_bytes_written() - written);
    // Weights that are gathered for an evaluation needn't be again in the step after it.
    if (job.eval_corpus && step == job.config.steps) replica.Loss(batches.mine[0]);
  }
  taken.memory = NonZero(replica.MemoryByName());
  taken.host_memory = NonZero(replica.HostMemoryByName());
  taken.disk = NonZero(replica.DiskByName());
  return taken;
}

TEST_F(DryRuns, AreTheRunsInEveryByteAndMessage) {
  const std::vector<Sample> samples = Samples();
  for (size_t i = 0; i < samples.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}: {}", i, samples[i].ToString()));
    Job job = PrepareJob(ConfigOf(samples[i], i));
    const bool on_disk = !job.config.offload_directory.empty();
    std::vector<Taken> taken(static_cast<size_t>(job.mesh.ranks()));
    RunThreadRanks(job.mesh.ranks(),
                   [&](Comm& world) { taken[static_cast<size_t>(world.rank())] = RunSteps(job, world); });
    // The trainer says what the largest rank held, all in all.
    const std::vector<StepMetrics> steps = MeasureSteps(job, 0);

    if (samples[i].documents == "passes") job.document_length = kDocument;
    int64_t largest = 0;
    for (int rank = 0; rank < job.mesh.ranks(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      const Taken& real = taken[static_cast<size_t>(rank)];
      WorkLog log;
      const DryRun whole_step = RunDry(job, rank, {.recorder = &log}), one_pass = RunDry(job, rank);
      for (const DryRun& dry : {whole_step, one_pass}) {
        Bytes memory = NonZero(dry.memory);
        EXPECT_EQ(memory.at("sequences"), SequenceBytes(job));
        memory.erase("sequences");
        EXPECT_EQ(memory, real.memory);
        EXPECT_EQ(NonZero(dry.host_memory), real.host_memory);
        EXPECT_EQ(NonZero(dry.disk), real.disk);
        EXPECT_EQ(dry.disk.empty(), !on_disk);
        EXPECT_EQ(dry.host_memory.contains("checkpoint_snapshot"), job.config.enable_checkpointing);
      }
      for (const Comm::Traffic& traffic : real.traffic) EXPECT_EQ(traffic, whole_step.traffic);
      for (const int64_t written : real.offload_bytes_written)
        EXPECT_EQ(written, whole_step.offload_bytes_written);
      largest = std::max(largest, Total(one_pass.memory));
    }
    ASSERT_EQ(std::ssize(steps), job.config.steps);
    for (const StepMetrics& step : steps) EXPECT_EQ(step.memory_peak_bytes, largest);
  }
}

}  // namespace
}  // namespace longspan
