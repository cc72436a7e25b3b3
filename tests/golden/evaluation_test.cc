// Evaluation and generation of a tiny model of every family against transformers in float64
// (make_families.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/file.h"
#include "eval/decoder.h"
#include "eval/text_loss.h"
#include "golden/golden.h"
#include "support/runs.h"
#include "train/checkpoint.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

const std::string kDirectory = LONGSPAN_SOURCE_DIR "/tests/golden/families";

std::vector<std::string> Models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kDirectory))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

class EvaluationOfFamilies : public ::testing::TestWithParam<std::string> {
 protected:
  nlohmann::json Expected(const std::string& name) const {
    return nlohmann::json::parse(ReadTextFile(directory_ + "/expected.json"))["cases"][name];
  }
  static std::string TextOf(const nlohmann::json& expected) {
    return kDirectory + "/" + expected["ids_file"].get<std::string>();
  }
  const std::string directory_ = kDirectory + "/" + GetParam();
};

TEST_P(EvaluationOfFamilies, LossIsThatOfTransformers) {
  for (const char* name : {"one_document", "packed"}) {
    const nlohmann::json expected = Expected(name);
    for (const int64_t ranks : {1, 2}) {
      TrainConfig config = testing::PlainConfig(directory_, TextOf(expected), "");
      config.max_target_length = static_cast<int64_t>(expected["logsumexp"].size());
      config.ranks = ranks;
      Job job = OpenModel(config);
      job.forward_only = true;
      job.config.base_output_directory = ".";
      job = PrepareJob(std::move(job));
      const LossReport report = MeasureLoss(job);
      EXPECT_EQ(report.whole.targets, expected["num_targets"].get<int64_t>());
      testing::ExpectNear(report.whole.loss, expected["loss"], 1e-6, name);
    }
  }
}

// Read piece by piece, each row that is known is the last of a piece: among them rows past a window's end and
// past an original length.
TEST_P(EvaluationOfFamilies, TheDecodersLogitsAreThoseOfTransformers) {
  const nlohmann::json expected = Expected("one_document");
  const std::string path = directory_ + "/config.json";
  const ModelConfig config = ParseModelConfig(ReadTextFile(path), path);
  const auto length = static_cast<int64_t>(expected["logsumexp"].size());
  const Batch batch = testing::ReadGoldenBatch(TextOf(expected), config, length);

  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  ShardedWeights weights(MakeParamTable(config), DType::kFloat32, ShardedWeights::Moments::kNoGradients,
                         backend.get());
  LoadModelWeights(directory_, weights);
  const ModelOptions options{.dtype = DType::kFloat32, .mask = {}, .max_target_length = length};
  Decoder decoder(config, options, *backend, weights);

  std::vector<double> got;
  size_t read = 0;
  for (const size_t row : expected["logits"]["rows"].get<std::vector<size_t>>()) {
    const std::span<const float> logits = decoder.Read(std::span(batch.tokens).subspan(read, row + 1 - read));
    read = row + 1;
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    testing::ExpectNear(std::log(sum), expected["logsumexp"][row], 5e-6,
                        fmt::format("logsumexp of row {}", row));
    for (const size_t column : expected["logits"]["columns"].get<std::vector<size_t>>())
      got.push_back(static_cast<double>(logits[column]));
  }
  EXPECT_LT(testing::RelativeDifference(got, expected["logits"]["values"].get<std::vector<double>>()), 5e-6);
}

INSTANTIATE_TEST_SUITE_P(All, EvaluationOfFamilies, ::testing::ValuesIn(Models()),
                         [](const auto& c) { return c.param; });

}  // namespace
}  // namespace longspan
