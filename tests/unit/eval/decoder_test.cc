// Reading a text piece by piece against the whole text at once.
#include "eval/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "support/expect_error.h"
#include "support/model_ranks.h"
#include "support/tiny.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::MakeBatch;
using testing::RelativeDifference;
using testing::RunModel;
using testing::TinyConfig;

// A window of 7 in layers 0 and 2, all keys in layer 1, each with a rope of its own, and soft caps.
ModelConfig MixedConfig() {
  ModelConfig config = TinyConfig();
  config.num_hidden_layers = 3;
  config.layer_kinds = {{.name = "sliding_attention", .sliding_window = 7, .rope = {.theta = 1000}},
                        {.name = "full_attention", .sliding_window = 0, .rope = {.theta = 50000}}};
  config.layer_kind_of = {0, 1, 0};
  config.attention_soft_cap = 2;
  return config;
}

// Shorter and longer than its original length other frequencies.
ModelConfig LongRopeConfig() {
  ModelConfig config = TinyConfig();
  RopeConfig& rope = config.layer_kinds[0].rope;
  rope.kind = RopeConfig::Kind::kLongRope;
  rope.original_max_position_embeddings = 32;
  rope.short_factor = {1, 1.5, 2};
  rope.long_factor = {2, 5, 9};
  rope.attention_factor = 1.2;
  return config;
}

// What the model makes of the whole text: (T, V).
std::vector<float> WholeLogits(const ModelConfig& config, DType dtype, const Batch& batch,
                               const MaskSpec& mask = {}) {
  const testing::RanksSpec spec = {
      .ranks = 1, .layout = LayoutKind::kContiguous, .mask = mask, .dtype = dtype};
  return RunModel(config, testing::InitialWeights(config, 1), spec, std::span(&batch, 1)).logits;
}

struct Reader {
  Reader(const ModelConfig& model, DType dtype, int64_t capacity, const MaskSpec& mask = {})
      : config(model),
        backend(MakeCpuBackend(1)),
        weights(table, dtype, ShardedWeights::Moments::kNoGradients, backend.get()),
        options({.dtype = dtype, .mask = mask, .max_target_length = capacity}) {
    weights.Initialize(config.initializer_range, 1);
    decoder = std::make_unique<Decoder>(config, options, *backend, weights);
  }
  std::vector<float> Read(std::span<const int32_t> tokens) {
    const std::span<const float> logits = decoder->Read(tokens);
    return {logits.begin(), logits.end()};
  }

  const ModelConfig config;
  const ParamTable table = MakeParamTable(config);
  const std::unique_ptr<Backend> backend;
  ShardedWeights weights;
  const ModelOptions options;
  std::unique_ptr<Decoder> decoder;
};

TEST(Decoder, ReadsAsTheModelDoes) {
  constexpr int64_t kLength = 70;
  for (const ModelConfig& config : {TinyConfig(), TinyConfig(1), MixedConfig(), LongRopeConfig()}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Batch batch = MakeBatch(kLength, {{0, kLength}}, config.vocab_size);
      const std::vector<float> whole = WholeLogits(config, dtype, batch);
      Reader reader(config, dtype, kLength);
      size_t read = 0;
      for (const size_t piece : {20, 1, 1, 5, 1, 30, 1, 1, 1, 1, 8}) {
        const std::vector<float> got = reader.Read(std::span(batch.tokens).subspan(read, piece));
        read += piece;
        const auto row = whole.begin() + static_cast<std::ptrdiff_t>((read - 1) * got.size());
        const std::vector<float> want(row, row + static_cast<std::ptrdiff_t>(got.size()));
        EXPECT_LT(RelativeDifference(got, want), dtype == DType::kFloat32 ? 1e-5 : 2e-2) << read;
        if (dtype == DType::kFloat32) {
          EXPECT_EQ(std::ranges::max_element(got) - got.begin(),
                    std::ranges::max_element(want) - want.begin());
        }
      }
      EXPECT_EQ(read, static_cast<size_t>(kLength));
    }
  }
}

// A prompt of several chunks; what comes first is seen at its end.
TEST(Decoder, LongPromptsGoInChunks) {
  constexpr int64_t kLength = 1100;
  ModelConfig config = TinyConfig();
  Batch batch = MakeBatch(kLength, {{0, kLength}}, config.vocab_size);
  const std::vector<float> whole = WholeLogits(config, DType::kFloat32, batch);
  const std::vector<float> got = Reader(config, DType::kFloat32, kLength).Read(batch.tokens);
  const std::vector<float> want(whole.end() - config.vocab_size, whole.end());
  EXPECT_LT(RelativeDifference(got, want), 1e-5);
  batch.tokens[0] ^= 1;
  EXPECT_GT(RelativeDifference(Reader(config, DType::kFloat32, kLength).Read(batch.tokens), want), 1e-6);
}

// A run's mask is that of the layers that have no window of their own.
TEST(Decoder, UnderTheMaskOfTheRun) {
  const ModelConfig config = TinyConfig();
  const Batch batch = MakeBatch(40, {{0, 40}}, config.vocab_size);
  for (const MaskSpec& mask : {MaskSpec{.kind = MaskKind::kSlidingWindow, .window = 6},
                               MaskSpec{.kind = MaskKind::kSinkWindow, .window = 5, .sinks = 2},
                               MaskSpec{.kind = MaskKind::kChunked, .chunk = 16}}) {
    Reader reader(config, DType::kFloat32, 40, mask);
    reader.Read(std::span(batch.tokens).first(31));
    const std::vector<float> got = reader.Read(std::span(batch.tokens).subspan(31));
    const std::vector<float> whole = WholeLogits(config, DType::kFloat32, batch, mask);
    EXPECT_LT(RelativeDifference(got, std::vector<float>(whole.end() - config.vocab_size, whole.end())),
              1e-5);
  }
}

TEST(Decoder, TokensOfAnotherModelAreRefused) {
  Reader reader(TinyConfig(), DType::kFloat32, 8);
  ExpectError({"token id 37 of the prompt", "vocabulary of 37"}, [&] {
    reader.Read(std::vector<int32_t>{1, 37});
  });
  EXPECT_THROW(reader.Read(std::vector<int32_t>(9, 1)), std::logic_error);  // more than it has room for
}

}  // namespace
}  // namespace longspan
