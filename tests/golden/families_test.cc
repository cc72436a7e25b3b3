// A tiny model of every family against transformers in float64 (make_families.py): loss, logits and
// gradients, also through the command line; and a run of each that stops and goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "core/file.h"
#include "golden/golden.h"
#include "train/checkpoint.h"
#include "train/safetensors.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ModelResult;
using testing::RanksSpec;

const std::string kDirectory = LONGSPAN_SOURCE_DIR "/tests/golden/families";
// Scores of a few units and norms of small rows: float32 is off by more than for a trained model
// (families/README.md, where transformers in float32 is compared).
constexpr testing::GoldenTolerances kTolerances = {.loss = 1e-6, .logits = 5e-6, .gradients = 2e-5};

std::vector<std::string> Models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kDirectory))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

nlohmann::json Expected(const std::string& model, const std::string& case_name) {
  return nlohmann::json::parse(ReadTextFile(kDirectory + "/" + model + "/expected.json"))["cases"][case_name];
}

ModelConfig Config(const std::string& model) {
  const std::string path = kDirectory + "/" + model + "/config.json";
  return ParseModelConfig(ReadTextFile(path), path);
}

std::string TextOf(const nlohmann::json& expected) {
  return kDirectory + "/" + expected["ids_file"].get<std::string>();
}

class Families : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Families, AgreeWithTransformers) {
  const auto& [model, case_name] = GetParam();
  const nlohmann::json expected = Expected(model, case_name);
  const ModelConfig config = Config(model);
  const int64_t num_tokens = static_cast<int64_t>(expected["logsumexp"].size());
  const auto fill = [&](ShardedWeights& weights) { LoadModelWeights(kDirectory + "/" + model, weights); };

  std::vector<RanksSpec> specs = {{.ranks = 1}, {.ranks = 2, .strategy = "ring"}};
  if (config.layer_kinds.size() == 2)
    specs.push_back(
        {.ranks = 3, .strategy = "ring", .of_kinds = {"ulysses", "ring"}, .layout = LayoutKind::kStriped});
  for (const RanksSpec& spec : specs) {
    SCOPED_TRACE(spec.ToString());
    const Batch batch = testing::ReadGoldenBatch(TextOf(expected), config, num_tokens + 7);
    ASSERT_EQ(batch.num_targets, expected["num_targets"].get<int64_t>());
    testing::ExpectGolden(RunModel(config, fill, spec, std::span(&batch, 1)), expected, config.vocab_size,
                          kTolerances);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         ::testing::Combine(::testing::ValuesIn(Models()),
                                            ::testing::Values("one_document", "packed")),
                         [](const auto& c) { return std::get<0>(c.param) + "_" + std::get<1>(c.param); });

class FamiliesCommandLine : public ::testing::TestWithParam<std::string> {};

TEST_P(FamiliesCommandLine, AgreesWithTransformers) {
  const nlohmann::json expected = Expected(GetParam(), "one_document");
  std::vector<std::string> keys = {"ranks=1", "ranks=2"};
  if (Config(GetParam()).layer_kinds.size() == 2)
    keys.push_back("ranks=3 'context_parallel_strategy={sliding_attention: ulysses, full_attention: ring}'");
  for (const std::string& more : keys) {
    SCOPED_TRACE(more);
    const nlohmann::json step = testing::GoldenStep(kDirectory + "/" + GetParam(), TextOf(expected),
                                                    expected["logsumexp"].size(), more);
    testing::ExpectNear(step["loss"], expected["loss"], 1e-6, "loss");
    testing::ExpectNear(step["grad_norm"], expected["grad_norm"], 1e-5, "grad_norm");
  }
}

// The checkpoint of a run that stopped holds all of it, under the family's own names.
TEST_P(FamiliesCommandLine, ResumesBitForBit) {
  const testing::TemporaryDirectory directory;
  const auto train = [&](const std::string& name, int steps, const std::string& more) {
    const testing::ProgramResult run = testing::RunProgram(fmt::format(
        "train model_path={0}/{1} data_path={0}/packed.jsonl max_target_length=128 steps={2} "
        "learning_rate=1e-2 learning_rate_schedule_steps=4 threads_per_rank=1 checkpoint_period=2 "
        "peak_tflops=1 base_output_directory={3} run_name={4} {5}",
        kDirectory, GetParam(), steps, directory.path(), name, more));
    ASSERT_EQ(run.exit_code, 0) << run.output;
  };
  train("straight", 4, "");
  train("stopped", 2, "");
  train("stopped", 4, "resume=auto");
  const SafetensorsDirectory source(kDirectory + "/" + GetParam(), "model");
  const std::string last = "/checkpoints/00000004";
  const auto sorted = [](std::vector<std::string> names) {
    std::ranges::sort(names);
    return names;
  };
  EXPECT_EQ(sorted(SafetensorsDirectory(directory / ("straight" + last), "model").Names()),
            sorted(source.Names()));
  for (const auto& entry : fs::directory_iterator(directory / ("straight" + last)))
    EXPECT_TRUE(ReadTextFile(entry.path()) ==
                ReadTextFile(directory / ("stopped" + last) + "/" + entry.path().filename().string()))
        << entry.path().filename();
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesCommandLine, ::testing::ValuesIn(Models()),
                         [](const auto& c) { return c.param; });

}  // namespace
}  // namespace longspan
