// A trained Llama against PyTorch in float64 (make_tinystories.py): loss, logits and gradients, over every
// strategy.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "core/file.h"
#include "data/corpus.h"
#include "data/packing.h"
#include "support/files.h"
#include "support/model_ranks.h"
#include "support/program.h"
#include "train/checkpoint.h"

namespace longspan {
namespace {

using testing::ModelResult;
using testing::RanksSpec;

// float32 against float64, relative; at most 1e-6 is seen.
constexpr double kLossTolerance = 1e-6;
constexpr double kLogitsTolerance = 2e-6;
constexpr double kGradientTolerance = 5e-6;

const std::string kDirectory = LONGSPAN_SOURCE_DIR "/tests/golden/tinystories";

const nlohmann::json& Expected(const std::string& case_name) {
  static const nlohmann::json expected = nlohmann::json::parse(ReadTextFile(kDirectory + "/expected.json"));
  return expected["cases"][case_name];
}

ModelConfig Config() { return ParseModelConfig(ReadTextFile(kDirectory + "/config.json"), "config.json"); }

Batch ReadBatch(const nlohmann::json& expected, const ModelConfig& config, int64_t length) {
  const auto tokenizer = MakeByteTokenizer();
  const auto corpus =
      OpenCorpus(kDirectory + "/" + expected["ids_file"].get<std::string>(), *tokenizer, config.vocab_size);
  return SequenceReader(*corpus, length, /*seed=*/0, /*shuffle=*/false).Next();
}

void ExpectNear(double got, double wanted, double tolerance, const std::string& what) {
  EXPECT_NEAR(got / wanted, 1, tolerance) << what << ": got " << got << ", wanted " << wanted;
}

void ExpectLogits(const ModelResult& result, const nlohmann::json& expected, int64_t vocab) {
  std::vector<double> got;
  for (const int64_t row : expected["logits"]["rows"]) {
    for (const int64_t column : expected["logits"]["columns"]) {
      got.push_back(result.logits[static_cast<size_t>(row * vocab + column)]);
    }
  }
  const auto wanted = expected["logits"]["values"].get<std::vector<double>>();
  EXPECT_LT(testing::RelativeDifference(got, wanted), kLogitsTolerance);

  const auto logsumexp = expected["logsumexp"].get<std::vector<double>>();
  for (size_t row = 0; row < logsumexp.size(); ++row) {
    double sum = 0;
    for (int64_t column = 0; column < vocab; ++column) {
      sum += std::exp(
          static_cast<double>(result.logits[row * static_cast<size_t>(vocab) + static_cast<size_t>(column)]));
    }
    ExpectNear(std::log(sum), logsumexp[row], kLogitsTolerance, fmt::format("logsumexp of row {}", row));
  }
}

void ExpectGradients(const ModelResult& result, const nlohmann::json& expected) {
  ASSERT_EQ(result.gradients.size(), expected["gradients"].size());
  for (const auto& [name, wanted] : expected["gradients"].items()) {
    const std::vector<float>& gradient = result.gradients.at(name);
    double squares = 0;
    for (const float g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
    ExpectNear(std::sqrt(squares), wanted["norm"], kGradientTolerance, name);
    std::vector<float> entries;
    for (size_t i = 0; i < gradient.size(); i += wanted["stride"].get<size_t>())
      entries.push_back(gradient[i]);
    EXPECT_LT(testing::RelativeDifference(entries, wanted["entries"].get<std::vector<double>>()),
              kGradientTolerance)
        << name;
  }
  ExpectNear(result.grad_norm, expected["grad_norm"], kGradientTolerance, "grad_norm");
}

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
  const Batch batch = ReadBatch(expected, config, num_tokens + padding);
  ASSERT_EQ(batch.num_tokens, num_tokens);
  ASSERT_EQ(batch.num_targets, expected["num_targets"].get<int64_t>());

  const RanksSpec spec{.ranks = ranks,
                       .strategy = strategy,
                       .layout = case_name == "packed" ? LayoutKind::kStriped : LayoutKind::kZigzag};
  const ModelResult result = RunModel(
      config, [](ResidentWeights& weights) { LoadModelWeights(kDirectory, weights); }, spec,
      std::span(&batch, 1));

  ExpectNear(result.loss, expected["loss"], kLossTolerance, "loss");
  ExpectNear(result.eval_loss, expected["loss"], kLossTolerance, "loss without gradients");
  ExpectLogits(result, expected, config.vocab_size);
  ExpectGradients(result, expected);
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
  const testing::TemporaryDirectory directory;
  const testing::ProgramResult run = testing::RunProgram(fmt::format(
      "train model_path={0} data_path={0}/{1} max_target_length={2} steps=1 learning_rate=0 dtype=float32 "
      "ranks={3} threads_per_rank=1 context_parallel_strategy={4} base_output_directory={5} run_name=golden "
      "peak_tflops=1",
      kDirectory, expected["ids_file"].get<std::string>(), length, ranks, strategy, directory.path()));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::vector<nlohmann::json> metrics = testing::ReadMetrics(directory / "golden");
  ASSERT_EQ(metrics.size(), 1u) << run.output;
  ExpectNear(metrics[0]["loss"], expected["loss"], kLossTolerance, "loss");
  ExpectNear(metrics[0]["grad_norm"], expected["grad_norm"], kGradientTolerance, "grad_norm");
  EXPECT_EQ(metrics[0]["tokens"], expected["logsumexp"].size());
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, TinyStoriesCommandLine,
                         ::testing::Combine(::testing::Values("one_document"),
                                            ::testing::ValuesIn(testing::StrategyNames()),
                                            ::testing::Range(1, 5), ::testing::Values(0, 7)),
                         NameOf);

}  // namespace
}  // namespace longspan
