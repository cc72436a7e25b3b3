// What bends memory: whatever a layer keeps changes no bit of a run, passes change it within rounding, and
// the dry run takes what the run takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/dry_comm.h"
#include "comm/thread_comm.h"
#include "model/remat_policy.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/model_ranks.h"
#include "support/runs.h"
#include "support/tiny.h"
#include "train/replica.h"

namespace longspan {
namespace {

using nlohmann::json;
using testing::ExpectError;
using testing::Outcome;

constexpr const char* kNames[] = {"query_proj", "key_proj", "value_proj", "context",
                                  "out_proj",   "mlpwi_0",  "mlpwi_1",    "mlpwo"};

class MemoryPolicies : public ::testing::Test {
 protected:
  // A tied Llama; a Gemma 3, whose sandwich norms read what others don't, in windows and stretched positions.
  MemoryPolicies() {
    for (testing::NamedConfig& family : testing::TinyFamilies()) {
      if (family.name == "gemma3") family.config.model_type = "gemma3_text";
      if (family.name == "llama" || family.name == "gemma3" || family.name == "phi3")
        models_[family.name] = family.config;
    }
    models_["phi3"].model_type = "phi3";
    testing::WriteDocuments(directory_ / "data.jsonl", {20, 31, 9, 40, 12, 12, 5, 33, 17, 28, 3},
                            testing::TinyConfig().vocab_size);
    for (const auto& [name, config] : models_) testing::WriteModel(directory_ / name, config, /*seed=*/7);
  }

  TrainConfig Config(const std::string& family, const std::string& dtype, int64_t ranks) const {
    return testing::FiveSteps(directory_ / family, directory_ / "data.jsonl", directory_ / "runs", dtype,
                              ranks);
  }

  Outcome Run(TrainConfig config) {
    config.run_name = fmt::format("run{}", num_runs_++);
    const Outcome outcome = testing::OutcomeOf(testing::TrainQuietly(config));
    EXPECT_EQ(std::ssize(outcome.losses), config.steps);
    return outcome;
  }

  std::map<std::string, ModelConfig> models_;
  testing::TemporaryDirectory directory_;

 private:
  int num_runs_ = 0;
};

// The keys that make remat_policy=custom the default policy.
TrainConfig AsCustom(TrainConfig config) {
  config.remat_policy = "custom";
  config.query_proj = config.key_proj = config.value_proj = config.context = "device";
  return config;
}
std::string& FieldOf(TrainConfig& config, const std::string& name) {
  const std::map<std::string, std::string*> fields = {
      {"query_proj", &config.query_proj}, {"key_proj", &config.key_proj}, {"value_proj", &config.value_proj},
      {"context", &config.context},       {"out_proj", &config.out_proj}, {"mlpwi_0", &config.mlpwi_0},
      {"mlpwi_1", &config.mlpwi_1},       {"mlpwo", &config.mlpwo}};
  return *fields.at(name);
}

TEST_F(MemoryPolicies, NoPolicyChangesABit) {
  for (const std::string family : {"llama", "gemma3"}) {
    for (const std::string dtype : {"float32", "bfloat16"}) {
      for (const int64_t ranks : {1, 2}) {
        const TrainConfig config = Config(family, dtype, ranks);
        const Outcome wanted = Run(config);
        EXPECT_NE(wanted.losses[0], wanted.losses[4]);
        const auto expect_same = [&](const TrainConfig& other, const std::string& what) {
          EXPECT_TRUE(Run(other) == wanted) << fmt::format("{} {} {} {}", family, dtype, ranks, what);
        };
        for (const RematPolicyRow& row : RematPolicyTable()) {
          if (row.name == config.remat_policy) continue;
          TrainConfig other = config;
          other.remat_policy = row.name;
          expect_same(other, other.remat_policy);
        }
        // Each name the other way round than by the default, and alone.
        for (const char* name : kNames) {
          TrainConfig other = AsCustom(config);
          FieldOf(other, name) = FieldOf(other, name) == "device" ? "remat" : "device";
          expect_same(other, fmt::format("{}={}", name, FieldOf(other, name)));
          TrainConfig alone = config;
          alone.remat_policy = "custom";
          FieldOf(alone, name) = "device";
          expect_same(alone, fmt::format("{} alone", name));
        }
      }
    }
  }
}

// Bytes by name of a rank's run and of its dry run.
void ExpectDryRunIsRun(const TrainConfig& config) {
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
    std::map<std::string, int64_t> dry = RunDry(job, world.rank()).memory;
    EXPECT_EQ(dry.at("sequences"), SequenceBytes(job));
    dry.erase("sequences");
    std::map<std::string, int64_t> real = replica.MemoryByName();
    std::erase_if(real, [](const auto& entry) { return entry.second == 0; });
    std::erase_if(dry, [](const auto& entry) { return entry.second == 0; });
    EXPECT_EQ(real, dry) << config.remat_policy << " " << config.tokens_per_pass << ", rank " << world.rank();
  });
}

TEST_F(MemoryPolicies, TheDryRunTakesWhatTheRunTakes) {
  for (const std::string family : {"llama", "gemma3"}) {
    for (const int64_t ranks : {1, 2, 3}) {
      for (const int64_t pass : {0, 40}) {
        for (const RematPolicyRow& row : RematPolicyTable()) {
          TrainConfig config = Config(family, "bfloat16", ranks);
          config.remat_policy = row.name;
          config.max_target_length = 90;
          config.tokens_per_pass = pass;
          ExpectDryRunIsRun(config);
        }
      }
    }
  }
}

TEST_F(MemoryPolicies, KeepWhatTheirNamesSay) {
  const auto by_policy = [&](const std::string& family, const std::string& policy) {
    TrainConfig config = Config(family, "float32", 1);
    config.remat_policy = policy;
    std::string names;
    for (const auto& [name, bytes] : RunDry(PrepareJob(config), 0).memory)
      if (name.starts_with("activations.") && bytes > 0) names += name.substr(12) + " ";
    return names;
  };
  EXPECT_EQ(by_policy("llama", "full"), "decoder_layer_input ");
  EXPECT_EQ(by_policy("llama", "save_qkv_proj"), "decoder_layer_input key_proj query_proj value_proj ");
  EXPECT_EQ(by_policy("llama", "save_qkv_proj_with_context"),
            "context context_lse decoder_layer_input key_proj query_proj value_proj ");
  EXPECT_EQ(by_policy("llama", "minimal"),
            "decoder_layer_input key_proj mlpwi_0 mlpwi_1 out_proj query_proj value_proj ");
  EXPECT_EQ(by_policy("gemma3", "minimal"),
            "decoder_layer_input key_proj mlpwi_0 mlpwi_1 mlpwo out_proj query_proj value_proj ");
  EXPECT_EQ(by_policy("gemma3", "minimal_with_context"),
            "context context_lse decoder_layer_input key_proj mlpwi_0 mlpwi_1 mlpwo out_proj query_proj "
            "value_proj ");
  EXPECT_EQ(by_policy("llama", "custom"), "decoder_layer_input ");
}

// The most bytes of each name that a dry run's step had alive at any of its operations.
class LiveBytes final : public WorkRecorder {
 public:
  void Watch(Arena& arena) { arena_ = &arena; }
  const std::map<std::string, int64_t>& most() const { return most_; }

  void Compute(const Work&) override {
    arena_->ResetPeak();  // so that the high mark is now
    for (const auto& [name, bytes] : arena_->peak_by_name()) most_[name] = std::max(most_[name], bytes);
  }
  Event Transfer(const Work&, const Event&, const Event& done) override { return done; }
  void Wait(const Event&) override {}

 private:
  Arena* arena_ = nullptr;
  std::map<std::string, int64_t> most_;
};

// Of a pass over one document of so many rows.
std::map<std::string, int64_t> LiveBytesOf(TrainConfig config, int64_t rows) {
  config.max_target_length = rows;
  const Job job = PrepareJob(config);
  LiveBytes live;
  const std::unique_ptr<Comm> world = MakeDryComm(0, job.mesh.ranks());
  Replica replica(job, MakeDryAccelerator(&live), *world);
  live.Watch(replica.backend().arena());
  Batch batch;
  batch.documents = {{0, rows}};
  replica.LossAndGradients(batch, 1.0);
  return live.most();
}

// Within a layer that keeps its input alone, at no moment has anything all of a rank's rows but q, k, v,
// `context`, the residual stream and their gradients (which strategies sum in f32); and once each.
TEST_F(MemoryPolicies, OnlyHeadsAndTheResidualStreamHaveAllRowsAtOnce) {
  constexpr int64_t kRows = 4096;
  for (const std::string family : {"llama", "gemma3", "phi3"}) {
    for (const int64_t ranks : {1, 4}) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", family, ranks));
      TrainConfig config = Config(family, "bfloat16", ranks);
      config.remat_policy = "full";
      config.context_parallel_layout = "contiguous";
      const std::map<std::string, int64_t> once = LiveBytesOf(config, kRows * ranks),
                                           twice = LiveBytesOf(config, 2 * kRows * ranks);
      const ModelConfig& m = models_.at(family);
      const int64_t query = kRows * m.num_attention_heads * m.head_dim,
                    key = kRows * m.num_key_value_heads * m.head_dim, lse = kRows * m.num_attention_heads;
      std::map<std::string, int64_t> wanted = {{"hidden", 2 * kRows * m.hidden_size},
                                               {"query_proj", 2 * query},
                                               {"key_proj", 2 * key},
                                               {"value_proj", 2 * key},
                                               {"context", 2 * query},
                                               {"context_lse", 4 * lse},
                                               {"context_gradient", 2 * query},
                                               {"context_delta", 4 * lse},
                                               {"query_gradient", 2 * query},
                                               {"key_gradient", 2 * key},
                                               {"value_gradient", 2 * key},
                                               {"ring.dq", 4 * query},
                                               {"ring.dk", 4 * key},
                                               {"ring.dv", 4 * key}};
      if (ranks > 1) {  // k and v that travel, twice; their gradients, three times; the running softmax
        wanted["ring.kv"] = 2 * (2 * key + 2 * key);
        wanted["ring.dkv"] = 3 * (4 * key + 4 * key);
        wanted["ring.state"] = 4 * query + 2 * 4 * lse;
      }
      std::map<std::string, int64_t> growing;
      for (const auto& [name, bytes] : once)
        if (twice.at(name) != bytes) {
          growing[name] = bytes;
          EXPECT_EQ(twice.at(name), 2 * bytes) << name;
        }
      EXPECT_EQ(growing, wanted);
      EXPECT_EQ(twice.size(), once.size());
      EXPECT_TRUE(once.contains("mlpwi_0") && once.contains("logits"));
    }
  }
}

void ExpectWithinRounding(const Outcome& got, const Outcome& wanted) {
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i] / wanted.losses[i], 1, 1e-5);
    EXPECT_NEAR(got.norms[i] / wanted.norms[i], 1, 1e-5);
  }
  for (const auto& [name, values] : wanted.weights)
    EXPECT_LT(testing::RelativeDifference(got.weights.at(name), values), 3e-5) << name;
}

TEST_F(MemoryPolicies, PassesChangeARunWithinRounding) {
  testing::WriteDocuments(directory_ / "held_out.jsonl", {17, 29, 8, 30}, testing::TinyConfig().vocab_size,
                          /*seed=*/2);
  for (const std::string family : {"llama", "gemma3"}) {
    for (const int64_t ranks : {1, 2, 4}) {
      TrainConfig config = Config(family, "float32", ranks);
      config.max_target_length = 100;
      config.opt_type = "sgd";  // of which a constant factor is seen
      config.learning_rate = 0.1;
      config.global_batch_size = 2;
      config.steps = 3;
      config.eval_data_path = directory_ / "held_out.jsonl";
      config.eval_interval = 3;
      if (ranks == 4) config.data_parallelism = 2;
      const Outcome wanted = Run(config);
      for (const int64_t pass : {40, 63, 1000}) {
        SCOPED_TRACE(fmt::format("{} on {} ranks, {} a pass", family, ranks, pass));
        config.tokens_per_pass = pass;
        const Outcome got = Run(config);
        ExpectWithinRounding(got, wanted);
        EXPECT_EQ(got == wanted, pass == 1000) << "a pass is not the sequence";
      }
    }
  }
}

// Phi-3's rotary embedding goes by the longest document of the sequence (here, whether one has more than 10
// tokens), whichever pass that is in.
TEST_F(MemoryPolicies, APassWithoutLongDocumentsIsPartOfItsSequence) {
  testing::WriteDocuments(directory_ / "short.jsonl", {30, 6, 5, 8, 3, 9, 4},
                          testing::TinyConfig().vocab_size);
  TrainConfig config = Config("phi3", "float32", 2);
  config.data_path = {{"", directory_ / "short.jsonl"}};
  config.packing = "concatenate";
  config.enable_data_shuffling = false;
  config.max_target_length = 65;
  config.steps = 1;
  config.opt_type = "sgd";
  const Outcome wanted = Run(config);
  config.tokens_per_pass = 32;
  ExpectWithinRounding(Run(config), wanted);
}

TEST_F(MemoryPolicies, EvaluationGoesInPassesToo) {
  testing::WriteDocuments(directory_ / "held_out.jsonl", {17, 29, 8, 30}, testing::TinyConfig().vocab_size,
                          /*seed=*/2);
  TrainConfig config = Config("llama", "float32", 2);
  config.max_target_length = 80;
  config.eval_data_path = directory_ / "held_out.jsonl";
  config.eval_interval = 1;
  config.steps = 1;
  config.enable_checkpointing = false;
  std::vector<double> losses;
  for (const int64_t pass : {0, 40}) {
    config.tokens_per_pass = pass;
    config.run_name = fmt::format("eval{}", pass);
    losses.push_back(testing::ReadMetrics(testing::TrainQuietly(config)).at(0)["eval_loss"]);
  }
  EXPECT_NEAR(losses[1] / losses[0], 1, 1e-5);
}

TEST_F(MemoryPolicies, ADocumentLongerThanAPassIsRefused) {
  TrainConfig config = Config("llama", "float32", 1);
  config.max_target_length = 90;
  config.tokens_per_pass = 39;
  ExpectError(
      {"tokens_per_pass 39", "40 tokens", "data.jsonl:4", "at least 40"}, [&] { PrepareJob(config); },
      ExitCode::kUsage);
  config.tokens_per_pass = 40;
  PrepareJob(config);
  testing::WriteDocuments(directory_ / "long.jsonl", {41}, testing::TinyConfig().vocab_size);
  config.eval_data_path = directory_ / "long.jsonl";
  PrepareJob(config);  // nothing is evaluated
  config.eval_interval = 1;
  ExpectError(
      {"41 tokens", "long.jsonl:1"}, [&] { PrepareJob(config); }, ExitCode::kUsage);
  config.max_target_length = 40;  // which cuts it
  PrepareJob(config);
}

// A million rows take, but for their ids, what two passes take.
TEST_F(MemoryPolicies, MemoryOfPassesDoesNotGrowWithTheSequence) {
  TrainConfig config = Config("llama", "bfloat16", 2);
  config.tokens_per_pass = 8192;
  std::map<std::string, int64_t> memory[2];
  for (const int64_t length : {int64_t{16384}, int64_t{1} << 20}) {
    config.max_target_length = length;
    const Job job = PrepareJob(config);
    std::map<std::string, int64_t>& of_length = memory[length > 16384];
    of_length = RunDry(job, 0).memory;
    EXPECT_EQ(of_length.at("sequences"), 8 * length);
    of_length.erase("sequences");
  }
  EXPECT_EQ(memory[0], memory[1]);
}

TEST_F(MemoryPolicies, AMillionTokensInPassesRun) {
  const std::vector<int64_t> lengths(190, 6000);
  testing::WriteDocuments(directory_ / "data.jsonl", lengths, testing::TinyConfig().vocab_size);
  TrainConfig config = Config("llama", "bfloat16", 2);
  config.max_target_length = 1000000;
  config.tokens_per_pass = 8192;
  config.attention_mask = "sliding_window";
  config.sliding_window_size = 64;
  config.mlp_chunk_length = config.loss_chunk_length = 1024;
  config.steps = 1;
  config.enable_checkpointing = false;
  config.run_name = "million";
  const std::vector<json> metrics = testing::ReadMetrics(testing::TrainQuietly(config));
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0]["tokens"], 996000);  // 166 documents; no other fits
  EXPECT_LT(metrics[0]["memory_peak_bytes"].get<int64_t>(), int64_t{40} << 20);
}

TEST_F(MemoryPolicies, WhatWouldDoNothingOrCannotBeIsRefused) {
  TrainConfig config = Config("llama", "float32", 1);
  config.out_proj = "device";
  ExpectError(
      {"out_proj is device", "remat_policy is save_qkv_proj_with_context", "remat_policy=custom"},
      [&] { PrepareJob(config); }, ExitCode::kUsage);
  config.remat_policy = "custom";
  EXPECT_EQ(PrepareJob(config).config.query_proj, "remat");
  config.decoder_layer_input = "remat";
  ExpectError(
      {"decoder_layer_input=remat", "device or offload"}, [&] { PrepareJob(config); }, ExitCode::kUsage);
}

}  // namespace
}  // namespace longspan
