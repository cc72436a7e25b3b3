#include "model/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <memory>
#include <optional>

#include "model/flops.h"
#include "reference/llama.h"
#include "reference/tape.h"
#include "support/tiny.h"
#include "unit/model/model_harness.h"

namespace longspan {
namespace {

using testing::CheckedWeights;
using testing::LocalAttention;
using testing::MakeBatch;
using testing::StagedActivations;
using testing::TinyConfig;
using Gradients = std::map<std::string, std::vector<float>>;
using enum Activation;

const ActivationPolicy kAll = {kDecoderLayerInput, kQueryProj, kKeyProj, kValueProj, kContext,
                               kOutProj,           kMlpwi0,    kMlpwi1,  kMlpwo};
const ActivationPolicy kInputsOnly = {kDecoderLayerInput};

struct Setup {
  DType dtype = DType::kFloat32;
  MaskSpec mask = {};
  ActivationPolicy kept = kAll;
  int64_t mlp_chunk_rows = 16, loss_chunk_rows = 8;
};

// `attention` for every layer.
std::vector<AttentionStrategy*> LayersOf(const ModelConfig& config, AttentionStrategy& attention) {
  return std::vector<AttentionStrategy*>(config.layer_kind_of.size(), &attention);
}

// One rank with one model.
class OneRank {
 public:
  OneRank(const ModelConfig& config, int64_t length, const Setup& setup)
      : config_(config),
        backend(MakeCpuBackend(1)),
        layout(LayoutKind::kContiguous, length, 1, 1),
        weights(table_, setup.dtype),
        activations(config_, layout.rows_per_rank(), setup.dtype, setup.kept),
        options_{.dtype = setup.dtype,
                 .mask = setup.mask,
                 .max_target_length = length,
                 .mlp_chunk_rows = setup.mlp_chunk_rows,
                 .loss_chunk_rows = setup.loss_chunk_rows},
        loader(config_, options_, layout, /*context_rank=*/0),
        model(config_, options_, *backend, LayersOf(config_, attention), weights, activations) {
    weights.Initialize(config.initializer_range, /*seed=*/5);
  }

  double LossAndGradients(const Batch& batch, double scale) {
    const double loss = model.LossAndGradients(loader.Load(batch), scale);
    weights.EndPass(/*with_gradients=*/true);
    activations.EndPass();
    return loss;
  }
  double Loss(const Batch& batch) {
    const double loss = model.Loss(loader.Load(batch));
    weights.EndPass(/*with_gradients=*/false);
    return loss;
  }
  std::vector<float> Logits(const Batch& batch) {
    const Buffer logits(DType::kFloat32, {layout.rows_per_rank(), config_.vocab_size});
    model.Logits(loader.Load(batch), logits.tensor());
    weights.EndPass(/*with_gradients=*/false);
    const float* data = logits.tensor().data<float>();
    return std::vector<float>(data, data + logits.tensor().num_elements());
  }

 private:
  const ModelConfig config_;
  const ParamTable table_ = MakeParamTable(config_);

 public:
  const std::unique_ptr<Backend> backend;
  const Layout layout;
  LocalAttention attention;
  CheckedWeights weights;
  StagedActivations activations;

 private:
  const ModelOptions options_;

 public:
  SequenceLoader loader;
  Model model;
};

template <class A, class B>
double RelativeDifference(const std::vector<A>& a, const std::vector<B>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

// Three documents of unequal length, padding between them and at the end.
Batch PackedBatch(const ModelConfig& config, uint64_t seed = 1) {
  return MakeBatch(31, {{0, 12}, {13, 14}, {15, 28}}, config.vocab_size, seed);
}

struct Case {
  std::string name;
  ModelConfig config;
  MaskSpec mask = {};
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};
ModelConfig WithKvHeads(int64_t kv_heads, bool tied) {
  ModelConfig config = TinyConfig(kv_heads);
  config.tie_word_embeddings = tied;
  return config;
}

// What families differ by, and every number of KV heads and mask.
std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"gqa_causal", WithKvHeads(2, false)},
      {"mqa_full", WithKvHeads(1, false), {.kind = MaskKind::kFull}},
      {"mha_window", WithKvHeads(8, true), {.kind = MaskKind::kSlidingWindow, .window = 5}},
      {"gqa_llama3_sinks", WithKvHeads(4, false), {.kind = MaskKind::kSinkWindow, .window = 3, .sinks = 2}},
  };
  cases.back().config.layer_kinds[0].rope = {.kind = RopeConfig::Kind::kLlama3,
                                             .factor = 4,
                                             .low_freq_factor = 1,
                                             .high_freq_factor = 4,
                                             .original_max_position_embeddings = 16};
  for (const testing::NamedConfig& family : testing::TinyFamilies())
    cases.push_back({family.name, family.config});
  return cases;
}

template <class Real>
reference::LlamaWeights<Real> Convert(const Gradients& weights) {
  reference::LlamaWeights<Real> converted;
  for (const auto& [name, values] : weights)
    for (const float x : values) converted[name].push_back(Real(static_cast<double>(x)));
  return converted;
}

class ModelAgainstReference : public ::testing::TestWithParam<Case> {};

TEST_P(ModelAgainstReference, LossLogitsAndEveryGradient) {
  const Case& c = GetParam();
  const ModelConfig& config = c.config;
  const Batch batch = PackedBatch(config);
  OneRank rank(config, 31, {.mask = c.mask});
  const double loss_scale = 1.0 / static_cast<double>(batch.num_targets);
  const double loss = rank.LossAndGradients(batch, loss_scale);
  const Gradients gradients = rank.weights.Gradients();

  reference::Tape tape;
  reference::LlamaWeights<reference::Var> weights;
  for (const auto& [name, values] : rank.weights.Masters())
    for (const float x : values) weights[name].emplace_back(static_cast<double>(x), tape);
  const auto wanted = reference::Llama(config, weights, c.mask, batch);
  const std::vector<double> derivatives = tape.GradientOf(wanted.loss.node);

  EXPECT_NEAR(loss, wanted.loss.value, 1e-6 * wanted.loss.value);
  EXPECT_NEAR(rank.Loss(batch), wanted.loss.value, 1e-6 * wanted.loss.value);
  std::vector<double> wanted_logits;
  for (const auto& row : wanted.logits)
    for (const reference::Var& logit : row) wanted_logits.push_back(logit.value);
  EXPECT_LT(RelativeDifference(rank.Logits(batch), wanted_logits), 2e-6);
  ASSERT_EQ(gradients.size(), weights.size());
  for (const auto& [name, values] : gradients) {
    std::vector<double> wanted_gradient;
    for (const reference::Var& weight : weights.at(name))
      wanted_gradient.push_back(derivatives[static_cast<size_t>(weight.node)] * loss_scale);
    EXPECT_LT(RelativeDifference(values, wanted_gradient), 1e-5) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ModelAgainstReference, ::testing::ValuesIn(Cases()),
                         [](const auto& c) { return c.param.name; });

// The tape is checked in turn by complex step: d/dx f = Im f(x + ih) / h.
class Reference : public ::testing::TestWithParam<Case> {};

TEST_P(Reference, TapeEqualsComplexStep) {
  const ModelConfig& config = GetParam().config;
  const Batch batch = MakeBatch(8, {{0, 3}, {3, 8}}, config.vocab_size);
  OneRank rank(config, 31, {});
  const Gradients masters = rank.weights.Masters();
  reference::Tape tape;
  reference::LlamaWeights<reference::Var> weights;
  for (const auto& [name, values] : masters)
    for (const float x : values) weights[name].emplace_back(static_cast<double>(x), tape);
  const auto output = reference::Llama(config, weights, {}, batch);
  const std::vector<double> derivatives = tape.GradientOf(output.loss.node);

  auto complex = Convert<std::complex<double>>(masters);
  for (auto& [name, values] : complex) {
    const size_t element = values.size() / 3;
    values[element] += std::complex<double>(0, 1e-30);
    const double wanted = reference::Llama(config, complex, {}, batch).loss.imag() / 1e-30;
    EXPECT_NEAR(derivatives[static_cast<size_t>(weights.at(name)[element].node)], wanted,
                1e-12 + 1e-10 * std::abs(wanted))
        << name;
    values[element] = values[element].real();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Reference, ::testing::ValuesIn(Cases()),
                         [](const auto& c) { return c.param.name; });

TEST(Model, EveryChoiceOfKeptActivationsGivesTheSameBits) {
  constexpr Activation choices[] = {kQueryProj, kKeyProj, kValueProj, kContext,
                                    kOutProj,   kMlpwi0,  kMlpwi1,    kMlpwo};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const testing::NamedConfig& family : testing::TinyFamilies()) {
      const ModelConfig& config = family.config;
      const Batch batch = PackedBatch(config);
      std::optional<double> loss;
      Gradients gradients;
      // Every subset of one family, a few of the others, nothing and all among them.
      const unsigned step = family.name == "gemma3" ? 1 : 51;
      for (unsigned subset = 0; subset < 256; subset += step) {
        ActivationPolicy kept = kInputsOnly;
        for (unsigned bit = 0; bit < 8; ++bit)
          if (subset >> bit & 1) kept.Set(choices[bit], Placement::kDevice);
        OneRank rank(config, 31, {.dtype = dtype, .kept = kept});
        const double this_loss = rank.LossAndGradients(batch, 0.1);
        // What is kept isn't computed again.
        EXPECT_EQ(rank.attention.num_forwards, (kept.Keeps(kContext) ? 1 : 2) * config.num_hidden_layers);
        if (!loss) loss = this_loss, gradients = rank.weights.Gradients();
        EXPECT_EQ(this_loss, *loss) << subset;
        EXPECT_TRUE(rank.weights.Gradients() == gradients) << family.name << " " << subset;
      }
    }
  }
}

TEST(Model, ChunkLengthsAgreeWithinRounding) {
  const ModelConfig config = TinyConfig();
  const Batch batch = PackedBatch(config);
  OneRank whole(config, 31, {.mlp_chunk_rows = 1000, .loss_chunk_rows = 1000});
  const double loss = whole.LossAndGradients(batch, 0.1);
  const std::pair<int64_t, int64_t> chunks[] = {{1, 31}, {31, 1}, {3, 3}, {16, 30}};
  for (const auto& [mlp, head] : chunks) {
    OneRank rank(config, 31, {.kept = kInputsOnly, .mlp_chunk_rows = mlp, .loss_chunk_rows = head});
    EXPECT_NEAR(rank.LossAndGradients(batch, 0.1), loss, 1e-6 * loss);
    const Gradients gradients = rank.weights.Gradients();
    for (const auto& [name, wanted] : whole.weights.Gradients())
      EXPECT_LT(RelativeDifference(gradients.at(name), wanted), 2e-6) << name << mlp << head;
  }
}

TEST(Model, GradientsAccumulate) {
  const ModelConfig config = TinyConfig();
  const Batch first = PackedBatch(config, 1), second = PackedBatch(config, 2);
  OneRank both(config, 31, {}), one(config, 31, {}), two(config, 31, {});
  both.LossAndGradients(first, 0.1);
  both.LossAndGradients(second, 0.1);
  one.LossAndGradients(first, 0.1);
  two.LossAndGradients(second, 0.1);
  const Gradients a = one.weights.Gradients(), b = two.weights.Gradients();
  for (const auto& [name, sum] : both.weights.Gradients()) {
    std::vector<float> wanted = a.at(name);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += b.at(name)[i];
    EXPECT_LT(RelativeDifference(sum, wanted), 2e-6) << name;
  }
}

// Micro-batches of 1 and 9 targets equal one batch of both.
TEST(Model, UnevenMicroBatchesEqualOneBatch) {
  const ModelConfig config = TinyConfig();
  const Batch whole = MakeBatch(12, {{0, 2}, {2, 12}}, config.vocab_size);
  ASSERT_EQ(whole.num_targets, 10);
  Batch one = whole, nine = whole;
  testing::KeepTargets(one, {0});
  testing::KeepTargets(nine, {2, 3, 4, 5, 6, 7, 8, 9, 10});
  ASSERT_EQ(one.num_targets, 1);
  ASSERT_EQ(nine.num_targets, 9);
  OneRank together(config, 12, {}), apart(config, 12, {});
  const double loss = together.LossAndGradients(whole, 0.1);
  EXPECT_NEAR(apart.LossAndGradients(one, 0.1) + apart.LossAndGradients(nine, 0.1), loss, 1e-6 * loss);
  const Gradients gradients = apart.weights.Gradients();
  for (const auto& [name, wanted] : together.weights.Gradients())
    EXPECT_LT(RelativeDifference(gradients.at(name), wanted), 2e-6) << name;
}

TEST(Model, BFloat16IsCloseToFloat32) {
  for (const testing::NamedConfig& family : testing::TinyFamilies()) {
    ModelConfig config = family.config;
    config.initializer_range = 0.15;
    const Batch batch = PackedBatch(config);
    OneRank exact(config, 31, {}), rounded(config, 31, {.dtype = DType::kBFloat16});
    const double loss = exact.LossAndGradients(batch, 0.1);
    EXPECT_NEAR(rounded.LossAndGradients(batch, 0.1), loss, 0.01 * loss);
    EXPECT_NEAR(rounded.Loss(batch), loss, 0.01 * loss);
    const Gradients gradients = rounded.weights.Gradients();
    // In epsilons; norms on the way bring what is small to full size, rounding errors with it.
    const double tolerance = (config.sandwich_norms ? 60.0 : config.query_key_norm ? 24.0 : 12.0) / 256;
    for (const auto& [name, wanted] : exact.weights.Gradients())
      EXPECT_LT(RelativeDifference(gradients.at(name), wanted), tolerance) << family.name << " " << name;
  }
}

TEST(Model, PaddingAndOtherDocumentsAreNotSeen) {
  const ModelConfig config = TinyConfig();
  const Batch batch = PackedBatch(config);
  OneRank rank(config, 31, {});
  const std::vector<float> logits = rank.Logits(batch);
  Batch changed = batch;
  changed.tokens[2] = (changed.tokens[2] + 1) % 37;  // document 0
  changed.tokens[12] = 9;                            // padding
  const std::vector<float> others = rank.Logits(changed);
  const auto row = [](const std::vector<float>& x, int64_t i) {
    return std::vector<float>(x.begin() + i * 37, x.begin() + (i + 1) * 37);
  };
  for (int64_t i = 0; i < 28; ++i) {
    const bool same = i < 2 || i > 12;
    EXPECT_EQ(row(others, i) == row(logits, i), same) << i;
  }
  // Nor is there a gradient from padding: token 36 stands nowhere else.
  Batch only_padding = batch;
  for (int32_t& token : only_padding.tokens) token = token == 36 ? 35 : token;
  only_padding.tokens[12] = only_padding.tokens[30] = 36;
  for (int32_t& target : only_padding.targets) target = target == 36 ? 35 : target;
  rank.LossAndGradients(only_padding, 1.0);
  const Gradients gradients = rank.weights.Gradients();
  const std::vector<float>& embedding = gradients.at("model.embed_tokens.weight");
  for (int64_t i = 36 * 24; i < 37 * 24; ++i) EXPECT_EQ(embedding[static_cast<size_t>(i)], 0.0f);
}

TEST(Model, TokensOutsideOfTheVocabularyAreRefused) {
  const ModelConfig config = TinyConfig();
  OneRank rank(config, 31, {});
  for (const int32_t bad : {-1, 37, kIgnoreTarget}) {
    Batch batch = PackedBatch(config);
    batch.tokens[20] = bad;
    EXPECT_THROW(rank.loader.Load(batch), Error) << bad;
  }
  for (const int32_t bad : {-1, 37}) {
    Batch batch = PackedBatch(config);
    batch.targets[20] = bad;
    EXPECT_THROW(rank.loader.Load(batch), Error) << bad;
  }
}

TEST(Model, NothingGrowsAfterTheFirstStepWhateverTheDocuments) {
  const ModelConfig config = TinyConfig();
  OneRank rank(config, 31, {.kept = kInputsOnly});
  rank.LossAndGradients(PackedBatch(config), 1.0);
  const int64_t peak = rank.backend->arena().peak_bytes();
  EXPECT_EQ(rank.backend->arena().used_bytes(), 0);
  rank.LossAndGradients(MakeBatch(31, {{0, 31}}, config.vocab_size), 1.0);
  rank.LossAndGradients(MakeBatch(31, {{0, 1}, {1, 2}, {2, 9}}, config.vocab_size), 1.0);
  EXPECT_EQ(rank.backend->arena().peak_bytes(), peak);
}

TEST(Model, ADryRunTakesTheSameMemory) {
  const ModelConfig config = TinyConfig();
  const ParamTable table = MakeParamTable(config);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const ActivationPolicy& kept : {kAll, kInputsOnly, ActivationPolicy{kDecoderLayerInput, kMlpwi0}}) {
      OneRank rank(config, 31, {.dtype = dtype, .kept = kept});
      rank.LossAndGradients(PackedBatch(config), 1.0);

      const std::unique_ptr<Backend> dry = MakeDryBackend(1);
      CheckedWeights weights(table, dtype);
      ResidentActivationStore activations(config, 31, dtype, kept, /*measure=*/true);
      LocalAttention attention;
      const ModelOptions options{
          .dtype = dtype, .mask = {}, .max_target_length = 31, .mlp_chunk_rows = 16, .loss_chunk_rows = 8};
      Model model(config, options, *dry, LayersOf(config, attention), weights, activations);
      model.LossAndGradients(rank.loader.Load(PackedBatch(config)), 1.0);
      EXPECT_EQ(dry->arena().peak_bytes(), rank.backend->arena().peak_bytes());
      EXPECT_EQ(dry->arena().peak_by_name(), rank.backend->arena().peak_by_name());
      EXPECT_EQ(dry->matmul_flops(), rank.backend->matmul_flops());
    }
  }
}

TEST(Model, MatrixProductsAreWhatTheFormulaCounts) {
  const ModelConfig config = TinyConfig();
  const double rows = 31, width = 24, query = 48, key = 12, inner = 40, layers = 2;
  const double projections = width * (query + 2 * key), out = query * width, feed_forward = 3 * width * inner;
  // What is recomputed. (What down gives isn't: the backward pass does without it here.)
  const std::pair<ActivationPolicy, double> cases[] = {
      {kAll, 0},
      {kInputsOnly, projections + out + feed_forward * 2 / 3},
      {{kDecoderLayerInput, kQueryProj, kKeyProj, kValueProj, kContext}, out + feed_forward * 2 / 3},
      {{kDecoderLayerInput, kOutProj, kKeyProj}, width * (query + key) + feed_forward * 2 / 3},
      {{kDecoderLayerInput, kQueryProj, kKeyProj, kValueProj, kMlpwi0}, out + feed_forward / 3},
  };
  for (const auto& [kept, again] : cases) {
    OneRank rank(config, 31, {.kept = kept});
    rank.LossAndGradients(PackedBatch(config), 1.0);
    const double wanted =
        rows * (6 * static_cast<double>(config.num_matrix_parameters()) + 2 * layers * again);
    EXPECT_EQ(rank.backend->matmul_flops(), wanted);
    EXPECT_EQ(static_cast<double>(config.num_matrix_parameters()),
              layers * (projections + out + feed_forward) + 37 * width);
  }
}

TEST(Flops, CountsAreExact) {
  const ModelConfig config = TinyConfig();  // 2 layers, 8 heads of 6
  const double parameters = static_cast<double>(config.num_matrix_parameters());
  const auto useful_pairs = [&](const MaskSpec& mask, std::initializer_list<Range> documents) {
    const Batch batch = MakeBatch(4096, documents, config.vocab_size);
    const StepFlops flops =
        CountFlops(config, mask, static_cast<int64_t>(batch.tokens.size()), batch.documents);
    EXPECT_EQ(flops.maxtext, 6 * parameters * 4096 + 12 * 2 * 48 * (4096.0 * 4096 / 2));
    const double pairs =
        (flops.useful - 6 * parameters * static_cast<double>(batch.num_tokens)) / (12 * 2 * 48);
    EXPECT_EQ(flops.attention_hardware, 14 * 2 * 48 * pairs);
    const StepFlops recomputed = CountFlops(config, mask, 4096, batch.documents, /*keeps_context=*/false);
    EXPECT_EQ(recomputed.attention_hardware, 18 * 2 * 48 * pairs);
    EXPECT_EQ(recomputed.useful, flops.useful);
    return pairs;
  };
  EXPECT_EQ(useful_pairs({}, {{0, 4096}}), 8390656);
  EXPECT_EQ(useful_pairs({}, {{0, 1024}, {1024, 2048}, {2048, 3072}, {3072, 4096}}), 2099200);
  EXPECT_EQ(useful_pairs({.kind = MaskKind::kSlidingWindow, .window = 1024}, {{0, 4096}}), 3670528);
  EXPECT_EQ(useful_pairs({}, {{0, 4}, {10, 13}}), 16);
}

// Each layer counts the pairs of its kind.
TEST(Flops, LayersWithWindowsCountTheirs) {
  ModelConfig config = TinyConfig();
  config.num_hidden_layers = 3;
  config.layer_kinds = {{.name = "sliding_attention", .sliding_window = 1024, .rope = {}}, LayerKind()};
  config.layer_kind_of = {0, 1, 0};
  const Batch batch = MakeBatch(4096, {{0, 4096}}, config.vocab_size);
  const StepFlops flops = CountFlops(config, {}, static_cast<int64_t>(batch.tokens.size()), batch.documents);
  const double pairs = 2 * 3670528.0 + 8390656;
  EXPECT_EQ(flops.attention_hardware, 14 * 48 * pairs);
  EXPECT_EQ(flops.useful, 6 * static_cast<double>(config.num_matrix_parameters()) * 4096 + 12 * 48 * pairs);
}

// Documents [0, 4) and [4, 8), zigzag over 2 ranks: positions travel with their tokens.
TEST(Shard, PositionsRestartAndTravelWithTheirTokens) {
  Batch batch = MakeBatch(8, {{0, 4}, {4, 8}}, 37);
  const Layout layout(LayoutKind::kZigzag, 8, 2, 1);
  EXPECT_EQ(TakeShard(batch, layout, 0).positions, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(TakeShard(batch, layout, 1).positions, (std::vector<int64_t>{2, 3, 0, 1}));
}

// Tokens 1..8, zigzag over 2 ranks.
TEST(Shard, TargetsAreShiftedBeforeTheSplit) {
  Batch batch;
  batch.tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  batch.targets = {2, 3, 4, 5, 6, 7, 8, kIgnoreTarget};
  batch.documents = {{0, 8}};
  const Layout layout(LayoutKind::kZigzag, 8, 2, 1);
  EXPECT_EQ(TakeShard(batch, layout, 0).tokens, (std::vector<int32_t>{1, 2, 7, 8}));
  EXPECT_EQ(TakeShard(batch, layout, 0).targets, (std::vector<int32_t>{2, 3, 8, kIgnoreTarget}));
  EXPECT_EQ(TakeShard(batch, layout, 1).targets, (std::vector<int32_t>{4, 5, 6, 7}));
}

TEST(Shard, EveryRowOnceAndPaddingIsNothing) {
  const Batch batch = PackedBatch(TinyConfig());
  std::vector<int64_t> positions(31);
  for (const Range& d : batch.documents)
    for (int64_t i = d.begin; i < d.end; ++i) positions[static_cast<size_t>(i)] = i - d.begin;
  for (const LayoutKind kind : {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped}) {
    for (const int ranks : {1, 2, 3, 5}) {
      const Layout layout(kind, 31, ranks, 1, 2);
      size_t seen = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shard shard = TakeShard(batch, layout, rank);
        ASSERT_EQ(static_cast<int64_t>(shard.tokens.size()), layout.rows_per_rank());
        ASSERT_EQ(shard.targets.size(), shard.tokens.size());
        ASSERT_EQ(shard.positions.size(), shard.tokens.size());
        size_t row = 0;
        for (const Range& span : layout.spans(rank))
          for (int64_t i = span.begin; i < span.end; ++i, ++row) {
            const size_t global = static_cast<size_t>(i);
            EXPECT_EQ(shard.tokens[row], i < 31 ? batch.tokens[global] : 0);
            EXPECT_EQ(shard.targets[row], i < 31 ? batch.targets[global] : kIgnoreTarget);
            EXPECT_EQ(shard.positions[row], i < 31 ? positions[global] : 0);
            seen += i < 31;
          }
      }
      EXPECT_EQ(seen, 31u);
    }
  }
}

}  // namespace
}  // namespace longspan
