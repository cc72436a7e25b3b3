// Training runs of a tiny model in a directory of their own: the trainer as the program calls it, without the
// program.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/file.h"
#include "support/files.h"
#include "support/safetensors.h"
#include "support/tiny.h"
#include "train/checkpoint.h"
#include "train/checkpoint_folder.h"
#include "train/job.h"
#include "train/safetensors.h"
#include "train/trainer.h"

namespace longspan::testing {

// Makes `directory` a Hugging Face model directory with initial weights of this seed.
inline void WriteModel(const std::string& directory, const ModelConfig& config, uint64_t seed) {
  std::filesystem::create_directories(directory);
  WriteFileAtomically(directory + "/config.json", WriteModelConfig(config, "", DType::kFloat32));
  ShardedWeights weights(MakeParamTable(config), DType::kFloat32, ShardedWeights::Moments::kNone);
  weights.Initialize(config.initializer_range, seed);
  std::vector<SafetensorsTensor> tensors;
  for (int unit = 0; unit < weights.table().num_units(); ++unit) {
    const ParamUnit& table = weights.table().units[static_cast<size_t>(unit)];
    const std::vector<Tensor> values = StoredViews(table, weights.State(unit).master);
    for (size_t i = 0; i < values.size(); ++i)
      tensors.push_back({table.stored[i].name, values[i], table.stored[i].shape});
  }
  WriteSafetensors(directory, "model", tensors, DType::kFloat32, int64_t{1} << 30);
}

// Documents of these lengths with random ids, one a line.
inline void WriteDocuments(const std::string& path, const std::vector<int64_t>& lengths, int64_t vocab_size,
                           uint64_t seed = 1) {
  const CounterRandom random(seed, "documents");
  uint64_t index = 0;
  std::string text;
  for (const int64_t length : lengths) {
    nlohmann::json ids = nlohmann::json::array();
    for (int64_t i = 0; i < length; ++i)
      ids.push_back(random.Below(static_cast<uint64_t>(vocab_size), index++));
    text += nlohmann::json{{"input_ids", ids}}.dump() + "\n";
  }
  WriteFileAtomically(path, text);
}

// f32, one thread a rank, nothing measured at start.
inline TrainConfig PlainConfig(const std::string& model, const std::string& data, const std::string& output) {
  TrainConfig config;
  config.model_path = model;
  config.data_path = {{"", data}};
  config.base_output_directory = output;
  config.dtype = "float32";
  config.threads_per_rank = 1;
  config.peak_tflops = 1;
  return config;
}

// Five steps of what PlainConfig says, on sequences of 45 that end in no chunk, with weights that move.
inline TrainConfig FiveSteps(const std::string& model, const std::string& data, const std::string& output,
                             const std::string& dtype, int64_t ranks) {
  TrainConfig config = PlainConfig(model, data, output);
  config.dtype = dtype;
  config.ranks = ranks;
  config.max_target_length = 45;
  config.mlp_chunk_length = 10;
  config.loss_chunk_length = 7;
  config.steps = 5;
  config.learning_rate = 1e-2;
  config.context_parallel_layout = "zigzag";
  return config;
}

// Runs it without its report on standard output, and gives back its run directory.
inline std::string TrainQuietly(const Job& job) {
  ::testing::internal::CaptureStdout();
  try {
    Train(job, "");
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  ::testing::internal::GetCapturedStdout();
  return job.run_directory();
}

inline std::string TrainQuietly(const TrainConfig& config) { return TrainQuietly(PrepareJob(config)); }

// name → values, of a Hugging Face directory.
inline std::map<std::string, std::vector<float>> ReadWeights(const std::string& directory) {
  const SafetensorsDirectory files(directory, "model");
  std::map<std::string, std::vector<float>> weights;
  for (const std::string& name : files.Names()) {
    const std::vector<int64_t>& shape = files.Shape(name);
    int64_t num_elements = 1;
    for (const int64_t n : shape) num_elements *= n;
    std::vector<float>& values = weights[name];
    values.resize(static_cast<size_t>(num_elements));
    files.ReadFloat32(name, Tensor(values.data(), DType::kFloat32, shape));
  }
  return weights;
}

inline std::map<std::string, std::vector<float>> LatestWeights(const std::string& run_directory) {
  return ReadWeights(LatestCheckpoint(run_directory + "/checkpoints"));
}

// What a run computed, to the last bit.
struct Outcome {
  std::vector<double> losses, norms;                  // of each step
  std::vector<double> eval_losses;                    // of the steps that have one
  std::map<std::string, std::vector<float>> weights;  // in the end
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

inline Outcome OutcomeOf(const std::string& run_directory) {
  Outcome outcome;
  for (const nlohmann::json& row : ReadMetrics(run_directory)) {
    outcome.losses.push_back(row["loss"]);
    outcome.norms.push_back(row["grad_norm"]);
    if (row.contains("eval_loss")) outcome.eval_losses.push_back(row["eval_loss"]);
  }
  outcome.weights = LatestWeights(run_directory);
  return outcome;
}

// Lines of metrics.jsonl, without what depends on the clock, on the memory that is taken and on where that
// is.
inline std::vector<std::string> TimelessLines(const std::string& run_directory) {
  std::vector<std::string> lines;
  for (nlohmann::json row : ReadMetrics(run_directory)) {
    for (const char* key : {"step_seconds", "tokens_per_second", "tflops_per_second", "mfu", "hfu",
                            "communication_wait_seconds", "memory_peak_bytes"})
      EXPECT_EQ(row.erase(key), 1u) << key;
    for (const char* key : {"offload_bytes_written", "offload_wait_seconds"}) row.erase(key);
    lines.push_back(row.dump());
  }
  return lines;
}

// Every file of the last checkpoint, by name.
inline std::map<std::string, std::string> CheckpointFiles(const std::string& run_directory) {
  std::map<std::string, std::string> files;
  for (const auto& file :
       std::filesystem::directory_iterator(LatestCheckpoint(run_directory + "/checkpoints")))
    files[file.path().filename()] = ReadTextFile(file.path());
  return files;
}

// Each step, and all bytes of the last checkpoint: weights, moments, state.
inline void ExpectSameRun(const std::string& got, const std::string& wanted) {
  EXPECT_EQ(TimelessLines(got), TimelessLines(wanted));
  const auto files = CheckpointFiles(got), expected = CheckpointFiles(wanted);
  ASSERT_EQ(files.size(), expected.size());
  for (const auto& [name, bytes] : expected) EXPECT_TRUE(files.at(name) == bytes) << name;
}

}  // namespace longspan::testing
