#include "train/job.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/expect_error.h"
#include "support/tiny.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using longspan::testing::ExpectError;
using longspan::testing::WriteText;

// "a", "aa" and a BOS.
constexpr const char* kTokenizer = R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 2, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": null, "decoder": null,
    "post_processor": {"type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}},
    "model": {"type": "BPE", "vocab": {"a": 0, "aa": 1}, "merges": ["a a"]}})";

class JobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(directory_);
    WriteText(directory_ + "/model/config.json", std::string(BuiltinModelJson("tiny")));
    WriteText(directory_ + "/text.txt", std::string(1000, 'a'));
    WriteText(directory_ + "/ids.jsonl", "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5]}\n");
    config_.model_path = "tiny";
    config_.data_path = {{"", directory_ + "/text.txt"}};
    config_.max_target_length = 64;
    config_.run_name = "run";
  }
  void TearDown() override { fs::remove_all(directory_); }

  const std::string directory_ = ::testing::TempDir() + "longspan_job_test";
  TrainConfig config_;
};

TEST_F(JobTest, LeavesNoDefaultUnresolved) {
  config_.ranks = 4;
  config_.data_parallelism = 2;
  config_.context_parallel_strategy = {{"", "ulysses"}};
  config_.steps = 7;
  const Job job = PrepareJob(config_);
  EXPECT_EQ(job.mesh, (MeshShape{.data = 2, .fsdp = 1, .ring = 1, .ulysses = 2}));
  EXPECT_EQ(job.config.global_batch_size, 2);
  EXPECT_EQ(job.micro_steps(), 1);
  EXPECT_EQ(job.config.learning_rate_schedule_steps, 7);
  EXPECT_GE(job.config.threads_per_rank, 1);
  EXPECT_EQ(job.config.ulysses_parallelism, 2);
}

TEST_F(JobTest, ARunStandsForItsNewestCheckpoint) {
  const std::string run = directory_ + "/runs/a", checkpoint = run + "/checkpoints/00000007";
  WriteText(checkpoint + "/config.json", std::string(BuiltinModelJson("tiny")));
  config_.model_path = run;
  EXPECT_EQ(PrepareJob(config_).model_directory, checkpoint);  // without `latest`
  WriteText(run + "/checkpoints/00000009/config.json", std::string(BuiltinModelJson("tiny")));
  fs::create_directory_symlink("00000007", run + "/checkpoints/latest");
  EXPECT_EQ(PrepareJob(config_).model_directory, checkpoint);
  for (const char* end : {"", "/"}) {  // the link may soon name another
    config_.model_path = run + "/checkpoints/latest" + end;
    EXPECT_EQ(fs::path(PrepareJob(config_).model_directory), fs::canonical(checkpoint));
  }
  config_.model_path = directory_ + "/runs";
  ExpectError({config_.model_path, "neither config.json nor checkpoints"}, [&] { PrepareJob(config_); });
}

// A model of two kinds of layers, and a text.
Job PrepareMixed(const TrainConfig& config) {
  ModelConfig model = testing::TinyConfig();
  model.layer_kinds = {{.name = "sliding_attention", .sliding_window = 8, .rope = {}}, LayerKind()};
  model.layer_kind_of = {0, 1};
  return PrepareJob(config, model, OpenCorpus(config.data_path.at(""), *MakeByteTokenizer(), 256));
}

TEST_F(JobTest, EachLayerTypeMayHaveAStrategy) {
  config_.ranks = 4;
  const auto prepare = [&](std::map<std::string, std::string> strategy) {
    config_.context_parallel_strategy = std::move(strategy);
    return PrepareMixed(config_);
  };
  const Job mixed = prepare({{"full_attention", "ring"}, {"sliding_attention", "ulysses"}});
  EXPECT_EQ(mixed.strategies, (std::vector<std::string>{"ulysses", "ring"}));
  EXPECT_EQ(mixed.mesh, (MeshShape{.ring = 4}));
  EXPECT_EQ(prepare({{"full_attention", "all_gather"}, {"sliding_attention", "usp"}}).mesh,
            (MeshShape{.ring = 2, .ulysses = 2}));
  EXPECT_EQ(prepare({{"full_attention", "ulysses"}, {"sliding_attention", "ulysses"}}).mesh,
            (MeshShape{.ulysses = 4}));
  EXPECT_EQ(prepare({{"", "ring"}}).strategies, (std::vector<std::string>{"ring", "ring"}));

  ExpectError(
      {"no layers of type 'sliding'", "sliding_attention and full_attention"},
      [&] {
        prepare({{"full_attention", "ring"}, {"sliding", "ulysses"}});
      },
      ExitCode::kUsage);
  ExpectError(
      {"nothing is said of the model's layers of type sliding_attention"},
      [&] {
        prepare({{"full_attention", "ring"}});
      },
      ExitCode::kUsage);
  config_.ranks = 9;  // of 8 heads
  ExpectError(
      {"num_attention_heads 8", "sliding_attention", "9 ranks", "at most 8"},
      [&] {
        prepare({{"full_attention", "ring"}, {"sliding_attention", "ulysses"}});
      },
      ExitCode::kUsage);
}

TEST_F(JobTest, AMaskOfTheRunDoesNotGoWithWindowsOfTheModel) {
  config_.attention_mask = "prefix";
  ExpectError(
      {"attention_mask prefix", "sliding_attention", "sliding window of 8"}, [&] { PrepareMixed(config_); },
      ExitCode::kUsage);
}

TEST_F(JobTest, TheModelsContextMayBeExtended) {
  EXPECT_EQ(PrepareJob(config_).config_changes, "");
  const ModelConfig before = PrepareJob(config_).model;
  config_.max_target_length = before.max_position_embeddings + 1;
  config_.rope_theta = 5e5;
  config_.rope_scaling = {{"rope_type", "yarn"}, {"factor", "4"}};
  for (const std::string& path : {std::string("tiny"), directory_ + "/model"}) {
    config_.model_path = path;
    const Job job = PrepareJob(config_);
    EXPECT_EQ(job.model.max_position_embeddings, before.max_position_embeddings + 1);
    const RopeConfig& rope = job.model.layer_kinds[0].rope;
    EXPECT_EQ(rope.kind, RopeConfig::Kind::kYarn);
    EXPECT_EQ(rope.theta, 5e5);
    EXPECT_EQ(rope.original_max_position_embeddings, static_cast<double>(before.max_position_embeddings));
    EXPECT_EQ(ParseModelConfig(WriteModelConfig(job.model, job.model_json, DType::kFloat32), "saved"),
              job.model);
    for (const char* key : {"max_position_embeddings: ", "rope_theta: ", "rope_scaling: "})
      EXPECT_NE(job.config_changes.find(key), std::string::npos) << job.config_changes;
  }
  config_.rope_scaling = {{"factor", "4"}};
  ExpectError(
      {"rope_scaling", "rope_type"}, [&] { PrepareJob(config_); }, ExitCode::kUsage);
}

TEST_F(JobTest, TheLayoutFollowsTheDocuments) {
  config_.ranks = 2;
  EXPECT_EQ(PrepareJob(config_).config.context_parallel_layout, "zigzag");
  config_.data_path = {{"", directory_ + "/ids.jsonl"}};
  EXPECT_EQ(PrepareJob(config_).config.context_parallel_layout, "striped");
  config_.ranks = 1;
  EXPECT_EQ(PrepareJob(config_).config.context_parallel_layout, "contiguous");
}

TEST_F(JobTest, ARunWithoutANameIsNamedAfterItsModel) {
  config_.run_name.clear();
  for (const char* slash : {"", "/", "/."}) {
    config_.model_path = directory_ + "/model" + slash;
    EXPECT_TRUE(PrepareJob(config_).config.run_name.starts_with("model-2")) << slash;
  }
}

TEST_F(JobTest, TextNeedsATokenizerThatCanBeRun) {
  config_.model_path = directory_ + "/model";
  EXPECT_NO_THROW(PrepareJob(config_));
  WriteText(directory_ + "/model/tokenizer.json", "{}");
  ExpectError({"tokenizer.json", "\"model\"", "tokenizer_path", "input_ids"}, [&] { PrepareJob(config_); });
  config_.data_path = {{"", directory_ + "/ids.jsonl"}};
  EXPECT_NO_THROW(PrepareJob(config_));
}

TEST_F(JobTest, TheTokenizerIsTheModelsOrTheOneGiven) {
  config_.model_path = directory_ + "/model";
  WriteText(directory_ + "/model/tokenizer.json", kTokenizer);
  EXPECT_EQ(PrepareJob(config_).tokenizer->vocab_size(), 3);
  EXPECT_EQ(PrepareJob(config_).tokenizer_directory, config_.model_path);

  // Each document begins with one BOS; 1000 times "a" are 500 of "aa".
  const Job job = PrepareJob(config_);
  EXPECT_EQ(job.sources[0].corpus->total_tokens(), 501);
  std::vector<int32_t> ids(3);
  job.sources[0].corpus->ReadTokens(0, 0, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{2, 1, 1}));

  config_.model_path = "tiny";
  EXPECT_TRUE(PrepareJob(config_).tokenizer->IsBytes());
  config_.tokenizer_pattern = "cl100k_base";
  ExpectError(
      {"tokenizer_pattern", "tokenizer_path"}, [&] { PrepareJob(config_); }, ExitCode::kUsage);
  config_.tokenizer_pattern.clear();
  config_.tokenizer_path = directory_ + "/model";
  EXPECT_EQ(PrepareJob(config_).tokenizer->vocab_size(), 3);
  EXPECT_EQ(PrepareJob(config_).tokenizer_directory, config_.tokenizer_path);
  config_.tokenizer_path = directory_ + "/nothing";
  ExpectError({directory_ + "/nothing"}, [&] { PrepareJob(config_); });
}

TEST_F(JobTest, SequencesMustDivideAmongDataRanks) {
  config_.ranks = config_.data_parallelism = 2;
  config_.global_batch_size = 3;
  ExpectError(
      {"global_batch_size 3", "data_parallelism 2", "2 and 4"}, [&] { PrepareJob(config_); },
      ExitCode::kUsage);
}

TEST_F(JobTest, GroupsMayShareWeights) {
  config_.ranks = 4;
  config_.fsdp_parallelism = 2;
  ExpectError(
      {"fsdp_parallelism 2", "shard_parameters=true"}, [&] { PrepareJob(config_); }, ExitCode::kUsage);
  config_.shard_parameters = true;
  const Job job = PrepareJob(config_);
  EXPECT_EQ(job.mesh, (MeshShape{.data = 1, .fsdp = 2, .ring = 2, .ulysses = 1}));
  EXPECT_EQ(job.config.global_batch_size, 2);
  EXPECT_EQ(job.micro_steps(), 1);
  config_.fsdp_parallelism = -1;
  config_.context_parallelism = 1;
  EXPECT_EQ(PrepareJob(config_).config.fsdp_parallelism, 4);
  config_.fsdp_parallelism = config_.data_parallelism = 2;
  config_.global_batch_size = 6;
  ExpectError(
      {"global_batch_size 6", "data_parallelism 2 · fsdp_parallelism 2", "4 and 8"},
      [&] { PrepareJob(config_); }, ExitCode::kUsage);
  config_.global_batch_size = 8;
  EXPECT_EQ(PrepareJob(config_).micro_steps(), 2);
}

TEST_F(JobTest, SettingsWithoutEffectAreRefused) {
  config_.sliding_window_size = 8;
  ExpectError(
      {"sliding_window_size is 8", "attention_mask=causal"}, [&] { PrepareJob(config_); }, ExitCode::kUsage);
  config_.attention_mask = "sliding_window";
  EXPECT_NO_THROW(PrepareJob(config_));
  config_.attention_sink_tokens = 2;
  ExpectError(
      {"attention_sink_tokens is 2"}, [&] { PrepareJob(config_); }, ExitCode::kUsage);
  config_.attention_mask = "sink_window";
  EXPECT_NO_THROW(PrepareJob(config_));
  config_.run_name.clear();
  config_.resume = "auto";
  ExpectError(
      {"resume=auto needs run_name"}, [&] { PrepareJob(config_); }, ExitCode::kUsage);
}

TEST_F(JobTest, SourcesHaveWeights) {
  EXPECT_EQ(PrepareJob(config_).sources[0].path, directory_ + "/text.txt");
  config_.data_path = {{directory_ + "/text.txt", "0.75"}, {directory_ + "/ids.jsonl", "1e-1"}};
  const Job job = PrepareJob(config_);
  ASSERT_EQ(job.sources.size(), 2u);
  EXPECT_EQ(job.sources[0].path, directory_ + "/ids.jsonl");  // in order of the paths
  EXPECT_EQ(job.sources[0].weight, 0.1);
  EXPECT_EQ(job.sources[0].corpus->total_tokens(), 5);
  EXPECT_EQ(job.sources[1].path, directory_ + "/text.txt");
  EXPECT_EQ(job.sources[1].weight, 0.75);
  // As far apart as they may be, the sources are dealt by them.
  config_.data_path = {{directory_ + "/text.txt", "1e15"}, {directory_ + "/ids.jsonl", "1e-15"}};
  const Job apart = PrepareJob(config_);
  Dealer dealer({apart.sources[0].weight, apart.sources[1].weight});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(dealer.Next(), 1u);
  for (const char* bad : {"", "0", "-1", "one", "1x", "inf", "nan", "1e-999", "1e308", "1.1e15", "9e-16"}) {
    config_.data_path[directory_ + "/text.txt"] = bad;
    ExpectError(
        {"data_path", "text.txt", fmt::format("'{}'", bad), "from 1e-15 to 1e+15"},
        [&] { PrepareJob(config_); }, ExitCode::kUsage);
  }
  config_.data_path = {};
  ExpectError(
      {"data_path is not set"}, [&] { PrepareJob(config_); }, ExitCode::kUsage);
  config_.data_path = {{"", directory_ + "/text.txt"}};
  config_.packing = "bestfit";
  ExpectError(
      {"packing", "bestfit", "best_fit"}, [&] { PrepareJob(config_); }, ExitCode::kUsage);
}

TEST_F(JobTest, HeldOutTextNeedsATarget) {
  config_.eval_interval = 5;
  config_.eval_data_path = WriteText(
      directory_ + "/held_out.jsonl",
      "{\"input_ids\": [1]}\n{\"input_ids\": [1, 2], \"loss_mask\": [1, 0]}\n{\"input_ids\": [3]}\n");
  config_.max_target_length = 2;
  ExpectError({"held_out.jsonl", "eval_steps"}, [&] { PrepareJob(config_); });
  WriteText(config_.eval_data_path, "{\"input_ids\": [1]}\n{\"input_ids\": [1, 2, 3]}\n");
  EXPECT_NO_THROW(PrepareJob(config_));
  config_.packing = "none";
  config_.eval_steps = 1;
  ExpectError({"held_out.jsonl", "eval_steps"}, [&] { PrepareJob(config_); });
}

TEST_F(JobTest, WhatIsMissingIsNamed) {
  config_.eval_interval = 5;
  ExpectError(
      {"eval_interval is 5", "eval_data_path"}, [&] { PrepareJob(config_); }, ExitCode::kUsage);
  config_.eval_interval = -1;
  config_.attention_mask = "sliding_window";
  ExpectError(
      {"sliding_window_size", "at least 1"}, [&] { PrepareJob(config_); }, ExitCode::kUsage);
  config_.attention_mask = "causal";
  config_.model_path = "llama3.1-8";
  ExpectError({"llama3.1-8b"}, [&] { PrepareJob(config_); });
}

}  // namespace
}  // namespace longspan
