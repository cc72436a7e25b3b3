// Comparison with what PyTorch says of a model in float64 (expected.json of make_tinystories.py and
// make_families.py).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/packing.h"
#include "support/files.h"
#include "support/model_ranks.h"
#include "support/program.h"

namespace longspan::testing {

// float32 against float64, relative.
struct GoldenTolerances {
  double loss = 1e-6, logits = 2e-6, gradients = 5e-6;
};

// The text of a case as one sequence.
inline Batch ReadGoldenBatch(const std::string& path, const ModelConfig& config, int64_t length) {
  const auto tokenizer = MakeByteTokenizer();
  const auto corpus = OpenCorpus(path, *tokenizer, config.vocab_size);
  return SequenceReader(*corpus, length, /*seed=*/0, /*shuffle=*/false).Next();
}

inline void ExpectNear(double got, double wanted, double tolerance, const std::string& what) {
  EXPECT_NEAR(got / wanted, 1, tolerance) << what << ": got " << got << ", wanted " << wanted;
}

inline void ExpectLogits(const ModelResult& result, const nlohmann::json& expected, int64_t vocab,
                         double tolerance) {
  std::vector<double> got;
  for (const int64_t row : expected["logits"]["rows"]) {
    for (const int64_t column : expected["logits"]["columns"]) {
      got.push_back(result.logits[static_cast<size_t>(row * vocab + column)]);
    }
  }
  const auto wanted = expected["logits"]["values"].get<std::vector<double>>();
  EXPECT_LT(RelativeDifference(got, wanted), tolerance);

  const auto logsumexp = expected["logsumexp"].get<std::vector<double>>();
  for (size_t row = 0; row < logsumexp.size(); ++row) {
    double sum = 0;
    for (int64_t column = 0; column < vocab; ++column) {
      sum += std::exp(
          static_cast<double>(result.logits[row * static_cast<size_t>(vocab) + static_cast<size_t>(column)]));
    }
    ExpectNear(std::log(sum), logsumexp[row], tolerance, fmt::format("logsumexp of row {}", row));
  }
}

inline void ExpectGradients(const ModelResult& result, const nlohmann::json& expected, double tolerance) {
  ASSERT_EQ(result.gradients.size(), expected["gradients"].size());
  for (const auto& [name, wanted] : expected["gradients"].items()) {
    const std::vector<float>& gradient = result.gradients.at(name);
    double squares = 0;
    for (const float g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
    ExpectNear(std::sqrt(squares), wanted["norm"], tolerance, name);
    std::vector<float> entries;
    for (size_t i = 0; i < gradient.size(); i += wanted["stride"].get<size_t>())
      entries.push_back(gradient[i]);
    EXPECT_LT(RelativeDifference(entries, wanted["entries"].get<std::vector<double>>()), tolerance) << name;
  }
  ExpectNear(result.grad_norm, expected["grad_norm"], tolerance, "grad_norm");
}

// Loss, logits and gradients of one case.
inline void ExpectGolden(const ModelResult& result, const nlohmann::json& expected, int64_t vocab,
                         const GoldenTolerances& tolerances = {}) {
  ExpectNear(result.loss, expected["loss"], tolerances.loss, "loss");
  ExpectNear(result.eval_loss, expected["loss"], tolerances.loss, "loss without gradients");
  ExpectLogits(result, expected, vocab, tolerances.logits);
  ExpectGradients(result, expected, tolerances.gradients);
}

// One step at learning rate 0 by the program, with `keys` besides; its line of metrics.
inline nlohmann::json GoldenStep(const std::string& model, const std::string& data, size_t length,
                                 const std::string& keys) {
  const TemporaryDirectory directory;
  const ProgramResult run = RunProgram(fmt::format(
      "train model_path={} data_path={} max_target_length={} steps=1 learning_rate=0 dtype=float32 "
      "threads_per_rank=1 base_output_directory={} run_name=golden peak_tflops=1 {}",
      model, data, length, directory.path(), keys));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  const std::vector<nlohmann::json> metrics = ReadMetrics(directory / "golden");
  EXPECT_EQ(metrics.size(), 1u) << run.output;
  return metrics.empty() ? nlohmann::json() : metrics[0];
}

}  // namespace longspan::testing
