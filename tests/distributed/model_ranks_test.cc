// A whole model over thread ranks: loss and raw gradients equal one rank's; a dry run costs what the run
// costs.
#include "support/model_ranks.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "comm/dry_comm.h"
#include "support/tiny.h"

namespace longspan {
namespace {

using testing::MakeBatch;
using testing::ModelResult;
using testing::RanksSpec;
using testing::TinyConfig;

constexpr double kTolerance = 1e-5;  // f32, relative
constexpr int kRanks[] = {1, 2, 3, 4, 8};
constexpr LayoutKind kLayouts[] = {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped};

// Tied, with llama3's rope scaling; 53 rows divide by no degree.
ModelConfig TiedConfig() {
  ModelConfig config = TinyConfig();
  config.tie_word_embeddings = true;
  config.layer_kinds[0].rope = {.kind = RopeConfig::Kind::kLlama3,
                                .factor = 4,
                                .low_freq_factor = 1,
                                .high_freq_factor = 4,
                                .original_max_position_embeddings = 16};
  return config;
}
Batch PackedBatch(const ModelConfig& config) {
  return MakeBatch(53, {{0, 20}, {20, 21}, {24, 49}}, config.vocab_size);
}

ModelResult RunTiny(const ModelConfig& config, const RanksSpec& spec, const Batch& batch) {
  return testing::RunModel(config, testing::InitialWeights(config, 3), spec, std::span(&batch, 1));
}

void ExpectEqual(const ModelResult& got, const ModelResult& wanted) {
  EXPECT_NEAR(got.loss / wanted.loss, 1, kTolerance);
  EXPECT_NEAR(got.eval_loss / wanted.loss, 1, kTolerance);
  EXPECT_LT(testing::GradientDifference(got, wanted), kTolerance);
  EXPECT_LT(testing::RelativeDifference(got.logits, wanted.logits), kTolerance);
}

class EveryStrategy : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryStrategy, LossAndRawGradientsEqualOneRanks) {
  const ModelConfig config = TiedConfig();
  const Batch batch = PackedBatch(config);
  const ModelResult wanted = RunTiny(config, {.layout = LayoutKind::kContiguous}, batch);
  for (const int ranks : kRanks) {
    for (const LayoutKind layout : kLayouts) {
      const RanksSpec spec{.ranks = ranks, .strategy = GetParam(), .layout = layout};
      SCOPED_TRACE(spec.ToString());
      ExpectEqual(RunTiny(config, spec, batch), wanted);
    }
  }
}

// What families differ by, where documents, windows and stretched rotary embeddings cross ranks.
TEST_P(EveryStrategy, EveryFamilyEqualsOneRank) {
  const std::pair<int, LayoutKind> cases[] = {
      {2, LayoutKind::kZigzag}, {3, LayoutKind::kStriped}, {4, LayoutKind::kContiguous}};
  for (const testing::NamedConfig& family : testing::TinyFamilies()) {
    const Batch batch = PackedBatch(family.config);
    const ModelResult wanted = RunTiny(family.config, {.layout = LayoutKind::kContiguous}, batch);
    for (const auto& [ranks, layout] : cases) {
      const RanksSpec spec{.ranks = ranks, .strategy = GetParam(), .layout = layout};
      SCOPED_TRACE(family.name + ", " + spec.ToString());
      ExpectEqual(RunTiny(family.config, spec, batch), wanted);
    }
  }
}

// Layers of one kind by one strategy, of the other by another.
TEST(MixedStrategies, EqualOneRank) {
  for (const testing::NamedConfig& family : testing::TinyFamilies()) {
    if (family.config.layer_kinds.size() < 2) continue;
    const Batch batch = PackedBatch(family.config);
    const ModelResult wanted = RunTiny(family.config, {.layout = LayoutKind::kContiguous}, batch);
    for (const RanksSpec& mixed :
         {RanksSpec{.ranks = 4, .strategy = "ring", .of_kinds = {"ulysses", "ring"}},
          RanksSpec{.ranks = 3, .strategy = "ring", .of_kinds = {"all_gather", "ulysses"}},
          RanksSpec{.ranks = 4, .strategy = "usp", .of_kinds = {"ulysses", "usp"}},
          RanksSpec{.ranks = 4, .strategy = "usp", .of_kinds = {"usp", "ring"}}}) {
      for (const LayoutKind layout : kLayouts) {
        RanksSpec spec = mixed;
        spec.layout = layout;
        SCOPED_TRACE(family.name + ", " + spec.ToString());
        ExpectEqual(RunTiny(family.config, spec, batch), wanted);
      }
    }
  }
}

// What a pass with gradients costs one rank.
struct Cost {
  std::map<std::string, int64_t, std::less<>> arena;  // at its peak, by name
  int64_t arena_peak = 0, activations = 0;
  Comm::Traffic traffic;
  double matmul_flops = 0;
  friend bool operator==(const Cost&, const Cost&) = default;
};

Cost CostOf(const ModelConfig& config, const RanksSpec& spec, const ActivationPolicy& kept,
            const Batch& batch, Comm& world, std::unique_ptr<Backend> backend) {
  const MeshShape shape = ResolveMesh({.ranks = spec.ranks,
                                       .strategy = spec.strategy,
                                       .num_attention_heads = static_cast<int>(config.num_attention_heads)});
  Mesh mesh = MakeMesh(shape, world);
  const testing::LayerStrategies strategies(config, spec, mesh);
  const int64_t length = static_cast<int64_t>(batch.tokens.size());
  const Layout layout(spec.layout, length, shape.ring, shape.ulysses);
  ShardedWeights weights(MakeParamTable(config), spec.dtype, ShardedWeights::Moments::kNone, backend.get());
  if (!backend->dry()) weights.Initialize(config.initializer_range, 3);
  ResidentActivationStore activations(config, layout.rows_per_rank(), spec.dtype, kept, backend->dry());
  const ModelOptions options{.dtype = spec.dtype,
                             .mask = spec.mask,
                             .max_target_length = length,
                             .mlp_chunk_rows = 10,
                             .loss_chunk_rows = 7};
  Model model(config, options, *backend, strategies.layers, weights, activations);
  SequenceLoader loader(config, options, layout, mesh.at.ring * shape.ulysses + mesh.at.ulysses);
  const Comm::Traffic before = world.traffic();
  model.LossAndGradients(loader.Load(batch), 0.1);
  Comm::Traffic traffic = world.traffic();
  traffic.bytes_sent -= before.bytes_sent;
  traffic.messages_sent -= before.messages_sent;
  return {.arena = backend->arena().peak_by_name(),
          .arena_peak = backend->arena().peak_bytes(),
          .activations = activations.num_bytes(),
          .traffic = traffic,
          .matmul_flops = backend->matmul_flops()};
}

// Each rank's dry run costs what the rank's run costs.
void ExpectEqualCosts(const ModelConfig& config, const std::string& strategy) {
  const Batch packed = PackedBatch(config), whole = MakeBatch(53, {{0, 53}}, config.vocab_size);
  using enum Activation;
  for (const ActivationPolicy& kept : {testing::KeptActivations(), ActivationPolicy{kDecoderLayerInput},
                                       ActivationPolicy{kDecoderLayerInput, kOutProj, kMlpwi1, kMlpwo}}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const int ranks : kRanks) {
        const RanksSpec spec{.ranks = ranks, .strategy = strategy, .dtype = dtype};
        SCOPED_TRACE(spec.ToString());
        std::vector<Cost> real(static_cast<size_t>(ranks));
        RunThreadRanks(ranks, [&](Comm& world) {
          real[static_cast<size_t>(world.rank())] =
              CostOf(config, spec, kept, packed, world, MakeCpuBackend(1));
        });
        for (int rank = 0; rank < ranks; ++rank) {
          const std::unique_ptr<Comm> world = MakeDryComm(rank, ranks);
          const Cost dry = CostOf(config, spec, kept, whole, *world, MakeDryBackend(1));
          EXPECT_EQ(dry.arena, real[static_cast<size_t>(rank)].arena) << "rank " << rank;
          EXPECT_EQ(dry.traffic.bytes_sent, real[static_cast<size_t>(rank)].traffic.bytes_sent)
              << "rank " << rank;
          EXPECT_TRUE(dry == real[static_cast<size_t>(rank)]) << "rank " << rank;
        }
      }
    }
  }
}

TEST_P(EveryStrategy, ADryRunOfAnyRankCostsTheSame) { ExpectEqualCosts(TiedConfig(), GetParam()); }

TEST_P(EveryStrategy, ADryRunOfAnyFamilyCostsTheSame) {
  for (const testing::NamedConfig& family : testing::TinyFamilies()) {
    SCOPED_TRACE(family.name);
    if (family.name == "gemma3" || family.name == "biases") ExpectEqualCosts(family.config, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, EveryStrategy, ::testing::ValuesIn(testing::StrategyNames()),
                         [](const auto& strategy) { return strategy.param; });

}  // namespace
}  // namespace longspan
