// A trained Llama against PyTorch in float64 (make_tinystories.py): loss, logits and gradients, over every
// strategy.
#include "golden/golden.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "core/file.h"
#include "train/checkpoint.h"

namespace longspan {
namespace {

using testing::ModelResult;
using testing::RanksSpec;

const std::string kDirectory = LONGSPAN_SOURCE_DIR "/tests/golden/tinystories";

const nlohmann::json& Expected(const std::string& case_name) {
  static const nlohmann::json expected = nlohmann::json::parse(ReadTextFile(kDirectory + "/expected.json"));
  return expected["cases"][case_name];
}

ModelConfig Config() { return ParseModelConfig(ReadTextFile(kDirectory + "/config.json"), "config.json"); }

// (case, strategy, ranks, rows of padding)
using Parameters = std::tuple<std::string, std::string, int, int>;

std::string NameOf(const ::testing::TestParamInfo<Parameters>& info) {
  const auto& [case_name, strategy, ranks, padding] = info.param;
  return fmt::format("{}_{}_ranks{}_padding{}", case_name, strategy, ranks, padding);
}

class TinyStories : public ::testing::TestWithParam<Parameters> {};

TEST_P(TinyStories, AgreesWithPyTorch) {
  const auto& [case_name, strategy, ranks, padding] = GetParam();
  const nlohmann::json& expected = Expected(case_name);
  const ModelConfig config = Config();
  const int64_t num_tokens = static_cast<int64_t>(expected["logsumexp"].size());
  const Batch batch = testing::ReadGoldenBatch(kDirectory + "/" + expected["ids_file"].get<std::string>(),
                                               config, num_tokens + padding);
  ASSERT_EQ(batch.num_tokens, num_tokens);
  ASSERT_EQ(batch.num_targets, expected["num_targets"].get<int64_t>());

  const RanksSpec spec{.ranks = ranks,
                       .strategy = strategy,
                       .layout = case_name == "packed" ? LayoutKind::kStriped : LayoutKind::kZigzag};
  const ModelResult result = RunModel(
      config, [](ShardedWeights& weights) { LoadModelWeights(kDirectory, weights); }, spec,
      std::span(&batch, 1));
  testing::ExpectGolden(result, expected, config.vocab_size);
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, TinyStories,
                         ::testing::Combine(::testing::Values("one_document", "packed"),
                                            ::testing::ValuesIn(testing::StrategyNames()),
                                            ::testing::Range(1, 5), ::testing::Values(0, 7)),
                         NameOf);

class TinyStoriesCommandLine : public ::testing::TestWithParam<Parameters> {};

TEST_P(TinyStoriesCommandLine, AgreesWithPyTorch) {
  const auto& [case_name, strategy, ranks, padding] = GetParam();
  const nlohmann::json& expected = Expected(case_name);
  const size_t length = expected["logsumexp"].size() + static_cast<size_t>(padding);
  const nlohmann::json step =
      testing::GoldenStep(kDirectory, kDirectory + "/" + expected["ids_file"].get<std::string>(), length,
                          fmt::format("ranks={} context_parallel_strategy={}", ranks, strategy));
  testing::ExpectNear(step["loss"], expected["loss"], 1e-6, "loss");
  testing::ExpectNear(step["grad_norm"], expected["grad_norm"], 5e-6, "grad_norm");
  EXPECT_EQ(step["tokens"], expected["logsumexp"].size());
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, TinyStoriesCommandLine,
                         ::testing::Combine(::testing::Values("one_document"),
                                            ::testing::ValuesIn(testing::StrategyNames()),
                                            ::testing::Range(1, 5), ::testing::Values(0, 7)),
                         NameOf);

}  // namespace
}  // namespace longspan
