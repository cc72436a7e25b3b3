// What must hold of a whole model, whatever strategy, layout and number of ranks it runs on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "model/rope_tables.h"
#include "support/model_ranks.h"
#include "support/tiny.h"

namespace longspan {
namespace {

using testing::KeepTargets;
using testing::MakeBatch;
using testing::ModelResult;
using testing::RanksSpec;

// Whole models in f32, relative difference of loss and of each gradient.
constexpr double kTolerance = 1e-5;

const RanksSpec kOneRank = {.ranks = 1};
constexpr LayoutKind kLayouts[] = {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped};
// In bf16 some CPU targets have kernels of their own.
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16};

ModelResult RunOnce(const ModelConfig& config, const RanksSpec& spec, const Batch& batch) {
  return RunModel(config, testing::InitialWeights(config, 7), spec, std::span(&batch, 1));
}

double Norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float x : values) squares += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(squares);
}

void ExpectEqual(const ModelResult& got, const ModelResult& wanted) {
  EXPECT_NEAR(got.loss / wanted.loss, 1, kTolerance);
  EXPECT_NEAR(got.eval_loss / wanted.loss, 1, kTolerance);
  EXPECT_NEAR(got.grad_norm / wanted.grad_norm, 1, kTolerance);
  for (const auto& [name, gradient] : wanted.gradients) {
    std::vector<float> difference = got.gradients.at(name);
    for (size_t i = 0; i < gradient.size(); ++i) difference[i] -= gradient[i];
    // A first token sees itself alone: its score has no gradient but rounding, which is that of the whole.
    const bool rounding = Norm(gradient) < 1e-5 * wanted.grad_norm;
    EXPECT_LT(Norm(difference), kTolerance * (rounding ? 0.1 * wanted.grad_norm : Norm(gradient))) << name;
  }
}

void ExpectSameBits(const ModelResult& got, const ModelResult& wanted) {
  EXPECT_EQ(got.loss, wanted.loss);
  EXPECT_EQ(got.eval_loss, wanted.eval_loss);
  EXPECT_EQ(got.logits, wanted.logits);
  EXPECT_EQ(got.gradients, wanted.gradients);
}

// Row i of the logits.
std::vector<float> Row(const ModelResult& result, int64_t i, int64_t vocab) {
  return {result.logits.begin() + i * vocab, result.logits.begin() + (i + 1) * vocab};
}

// Runs `body` for each strategy, number of ranks and layout, in f32.
template <class Body>
void ForEachSpec(std::initializer_list<int> ranks, std::span<const LayoutKind> layouts, const Body& body) {
  for (const std::string& strategy : testing::StrategyNames()) {
    for (const int num_ranks : ranks) {
      for (const LayoutKind layout : layouts) {
        const RanksSpec spec{.ranks = num_ranks, .strategy = strategy, .layout = layout};
        SCOPED_TRACE(spec.ToString());
        body(spec);
      }
    }
  }
}

// The same in f32 and in bf16.
template <class Body>
void ForEachSpecAndDType(std::initializer_list<int> ranks, const Body& body) {
  ForEachSpec(ranks, kLayouts, [&](RanksSpec spec) {
    for (const DType dtype : kDTypes) {
      SCOPED_TRACE(Name(dtype));
      spec.dtype = dtype;
      body(spec);
    }
  });
}

struct NamedMask {
  std::string name;
  MaskSpec spec;
};
void PrintTo(const NamedMask& mask, std::ostream* out) { *out << mask.name; }

class EveryMask : public ::testing::TestWithParam<NamedMask> {};

// Documents of 9, 1, 28 and 23 tokens in 70 rows: padding inside and at the end, and no degree divides 70 and
// 2·P.
TEST_P(EveryMask, LossAndGradientsEqualOneRanks) {
  const ModelConfig config = testing::TinyConfig();
  const Batch batch = MakeBatch(70, {{0, 9}, {9, 10}, {12, 40}, {40, 63}}, config.vocab_size);
  RanksSpec one = kOneRank;
  one.mask = GetParam().spec;
  const ModelResult wanted = RunOnce(config, one, batch);
  ForEachSpec({2, 3, 4, 8}, kLayouts, [&](RanksSpec spec) {
    spec.mask = one.mask;
    ExpectEqual(RunOnce(config, spec, batch), wanted);
  });
}

TEST(InvariantsOfStrategies, EveryGroupingOfHeadsEqualsOneRanks) {
  for (const int64_t kv_heads : {1, 2, 4, 8}) {
    SCOPED_TRACE(fmt::format("{} KV heads", kv_heads));
    const ModelConfig config = testing::TinyConfig(kv_heads);
    const Batch batch = MakeBatch(70, {{0, 70}}, config.vocab_size);
    const ModelResult wanted = RunOnce(config, kOneRank, batch);
    const LayoutKind layouts[] = {LayoutKind::kZigzag};
    ForEachSpec({3, 4, 8}, layouts,
                [&](const RanksSpec& spec) { ExpectEqual(RunOnce(config, spec, batch), wanted); });
  }
}

INSTANTIATE_TEST_SUITE_P(
    InvariantsOfStrategies, EveryMask,
    ::testing::Values(NamedMask{"full", {.kind = MaskKind::kFull}},
                      NamedMask{"causal", {.kind = MaskKind::kCausal}},
                      NamedMask{"window",
                                {.kind = MaskKind::kSlidingWindow, .window = 20}},  // spans three of 8 ranks
                      NamedMask{"chunked", {.kind = MaskKind::kChunked, .chunk = 11}},
                      NamedMask{"prefix", {.kind = MaskKind::kPrefix, .prefix = 6}},
                      NamedMask{"sink_window", {.kind = MaskKind::kSinkWindow, .window = 7, .sinks = 3}}),
    [](const auto& named) { return named.param.name; });

TEST(InvariantsOfStrategies, LabelsAreShiftedOnceBeforeTheSplit) {
  Batch batch;
  batch.tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  batch.targets = {2, 3, 4, 5, 6, 7, 8, kIgnoreTarget};
  batch.documents = {{0, 8}};
  const Layout zigzag(LayoutKind::kZigzag, 8, 2, 1);
  EXPECT_EQ(TakeShard(batch, zigzag, 0).targets, (std::vector<int32_t>{2, 3, 8, kIgnoreTarget}));
  EXPECT_EQ(TakeShard(batch, zigzag, 1).targets, (std::vector<int32_t>{4, 5, 6, 7}));
  for (const LayoutKind kind : kLayouts) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      const Layout layout(kind, 8, ranks, 1);
      std::multiset<int32_t> targets;
      for (int rank = 0; rank < ranks; ++rank) {
        for (const int32_t target : TakeShard(batch, layout, rank).targets) {
          if (target != kIgnoreTarget) targets.insert(target);
        }
      }
      EXPECT_EQ(targets, (std::multiset<int32_t>{2, 3, 4, 5, 6, 7, 8})) << Name(kind) << " over " << ranks;
    }
  }
}

TEST(InvariantsOfStrategies, PositionsTravelWithTheirTokens) {
  const Batch batch = MakeBatch(8, {{0, 4}, {4, 8}}, 37);
  const Layout zigzag(LayoutKind::kZigzag, 8, 2, 1);
  EXPECT_EQ(TakeShard(batch, zigzag, 0).positions, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(TakeShard(batch, zigzag, 1).positions, (std::vector<int64_t>{2, 3, 0, 1}));
}

// Rotating a shard and putting the rows back in order gives the bits of rotating them all.
TEST(InvariantsOfStrategies, RotatedRowsAreOneRanksBitForBit) {
  constexpr int64_t kLength = 200;
  const ModelConfig config = testing::TinyConfig();
  const Batch batch = MakeBatch(kLength, {{0, 61}, {70, 71}, {71, 190}}, config.vocab_size);
  const OwnedRopeTables tables(config.layer_kinds[0].rope, config.head_dim, kLength);
  const CounterRandom random(3, "rows");
  const int64_t width = config.num_attention_heads * config.head_dim;

  // (T, H·D), each row rotated on the rank that holds it; 0 where nobody does.
  const auto rotate = [&](const Layout& layout) {
    const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
    std::vector<float> whole(static_cast<size_t>(kLength * width));
    for (int rank = 0; rank < layout.num_ranks(); ++rank) {
      std::vector<int64_t> positions = TakeShard(batch, layout, rank).positions;
      const Buffer rows(DType::kFloat32,
                        {layout.rows_per_rank(), config.num_attention_heads, config.head_dim});
      float* row = rows.tensor().data<float>();
      for (const Range& span : layout.spans(rank)) {
        for (int64_t i = span.begin * width; i < span.end * width; ++i) {
          *row++ = static_cast<float>(random.Normal(static_cast<uint64_t>(i)));
        }
      }
      backend->Rope(rows.tensor(), Tensor(positions.data(), DType::kInt64, {layout.rows_per_rank()}),
                    tables.tables(kLength), /*inverse=*/false);
      const float* rotated = rows.tensor().data<float>();
      for (const Range& span : layout.spans(rank)) {
        for (int64_t i = span.begin; i < span.end; ++i, rotated += width) {
          if (i < kLength) std::copy_n(rotated, width, whole.begin() + i * width);
        }
      }
    }
    return whole;
  };
  const std::vector<float> wanted = rotate(Layout(LayoutKind::kContiguous, kLength, 1, 1));
  for (const LayoutKind kind : kLayouts) {
    for (const int ring : {2, 3, 8}) {
      for (const int ulysses : {1, 2}) {
        EXPECT_TRUE(rotate(Layout(kind, kLength, ring, ulysses)) == wanted)
            << Name(kind) << " over " << ring << " x " << ulysses;
      }
    }
  }
}

TEST(InvariantsOfStrategies, OneTargetGivesTheSameGradientWhereverItLies) {
  const ModelConfig config = testing::TinyConfig();
  for (const int64_t row : {0, 6, 13, 22}) {
    SCOPED_TRACE(fmt::format("the only target is in row {}", row));
    Batch batch = MakeBatch(24, {{0, 24}}, config.vocab_size);
    KeepTargets(batch, {row});
    const ModelResult wanted = RunOnce(config, kOneRank, batch);
    ForEachSpec({2, 4}, kLayouts,
                [&](const RanksSpec& spec) { ExpectEqual(RunOnce(config, spec, batch), wanted); });
  }
}

// The last row's gradient must reach the first token's key and value through every hop.
TEST(InvariantsOfStrategies, GradientOfTheLastRankReachesTheFirst) {
  const ModelConfig config = testing::TinyConfig();
  Batch batch = MakeBatch(32, {{0, 32}}, config.vocab_size - 1);
  batch.tokens[0] = 36;  // nowhere else, and no target
  KeepTargets(batch, {30});
  const ModelResult wanted = RunOnce(config, kOneRank, batch);
  const LayoutKind contiguous[] = {LayoutKind::kContiguous};
  ForEachSpec({2, 3, 4, 8}, contiguous, [&](const RanksSpec& spec) {
    const ModelResult got = RunOnce(config, spec, batch);
    const std::vector<float> first = {
        got.gradients.at("model.embed_tokens.weight").end() - config.hidden_size,
        got.gradients.at("model.embed_tokens.weight").end()};
    const std::vector<float> first_wanted = {
        wanted.gradients.at("model.embed_tokens.weight").end() - config.hidden_size,
        wanted.gradients.at("model.embed_tokens.weight").end()};
    EXPECT_TRUE(std::any_of(first.begin(), first.end(), [](float x) { return x != 0; }));
    EXPECT_LT(testing::RelativeDifference(first, first_wanted), kTolerance);
  });
}

TEST(InvariantsOfStrategies, OtherDocumentsDoNotChangeByABit) {
  const ModelConfig config = testing::TinyConfig();
  const std::vector<Range> documents = {{0, 13}, {13, 14}, {14, 37}, {39, 50}};
  const Batch batch = MakeBatch(53, documents, config.vocab_size);
  Batch changed = batch;
  changed.tokens[5] = (batch.tokens[5] + 1) % 37;
  ForEachSpecAndDType({1, 2, 3, 4, 8}, [&](const RanksSpec& spec) {
    const ModelResult before = RunOnce(config, spec, batch), after = RunOnce(config, spec, changed);
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_EQ(Row(before, i, 37), Row(after, i, 37)) << "row " << i << " is earlier";
    for (int64_t i = 5; i < 13; ++i)
      EXPECT_NE(Row(before, i, 37), Row(after, i, 37)) << "row " << i << " sees it";
    for (int64_t i = 13; i < 53; ++i) EXPECT_EQ(Row(before, i, 37), Row(after, i, 37)) << "row " << i;
  });
}

TEST(InvariantsOfStrategies, OnlyTheWindowSeesAToken) {
  ModelConfig config = testing::TinyConfig();
  config.SetNumLayers(1);
  const Batch batch = MakeBatch(32, {{0, 32}}, config.vocab_size);
  Batch changed = batch;
  changed.tokens[0] = (batch.tokens[0] + 1) % 37;
  ForEachSpecAndDType({1, 2, 4, 8}, [&](RanksSpec spec) {
    spec.mask = {.kind = MaskKind::kSlidingWindow, .window = 4};
    const ModelResult before = RunOnce(config, spec, batch), after = RunOnce(config, spec, changed);
    for (int64_t i = 0; i < 32; ++i) {
      EXPECT_EQ(Row(before, i, 37) != Row(after, i, 37), i < 4) << "row " << i;
    }
  });
}

TEST(InvariantsOfStrategies, RaggedDocumentsEqualOneRanksAndRepeat) {
  const ModelConfig config = testing::TinyConfig();
  struct Case {
    int64_t length;
    std::vector<Range> documents;
    int ranks;
  };
  const Case cases[] = {{4, {{0, 4}}, 4},
                        {3, {{0, 3}}, 4},
                        {698, {{0, 698}}, 4},
                        {8, {{0, 3}, {4, 6}}, 4},
                        {7, {{0, 4}, {4, 7}}, 2}};
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{} rows", c.length));
    const Batch batch = MakeBatch(c.length, c.documents, config.vocab_size);
    const ModelResult wanted = RunOnce(config, kOneRank, batch);
    ForEachSpec({c.ranks}, kLayouts, [&](const RanksSpec& spec) {
      const ModelResult got = RunOnce(config, spec, batch);
      ExpectEqual(got, wanted);
      for (const Range& document : batch.documents) {
        for (int64_t i = document.begin; i < document.end; ++i) {
          const std::vector<float> row = Row(got, i, 37);
          EXPECT_LT(testing::RelativeDifference(row, Row(wanted, i, 37)), kTolerance) << "row " << i;
          EXPECT_TRUE(std::any_of(row.begin(), row.end(), [](float x) { return x != 0; })) << "row " << i;
        }
      }
      ExpectSameBits(RunOnce(config, spec, batch), got);
    });
  }
}

TEST(InvariantsOfStrategies, PaddingIsSeenByNobody) {
  const ModelConfig config = testing::TinyConfig();
  // The same documents with padding around them, and whatever id the padding has.
  const Batch batch = MakeBatch(8, {{0, 3}, {4, 6}}, config.vocab_size);
  Batch marked = batch;
  for (const size_t row : {3u, 6u, 7u}) marked.tokens[row] = 36;
  ForEachSpecAndDType({1, 2, 3, 4}, [&](const RanksSpec& spec) {
    const ModelResult got = RunOnce(config, spec, batch), other = RunOnce(config, spec, marked);
    EXPECT_EQ(got.loss, other.loss);
    EXPECT_EQ(got.gradients, other.gradients);
    for (const int64_t row : {0, 1, 2, 4, 5})
      EXPECT_EQ(Row(got, row, 37), Row(other, row, 37)) << "row " << row;
  });
  // Nor does padding count: as many more rows as one likes.
  const Batch longer = MakeBatch(40, {{0, 3}, {4, 6}}, config.vocab_size);
  const ModelResult wanted = RunOnce(config, kOneRank, batch);
  ForEachSpec({1, 3, 4}, kLayouts,
              [&](const RanksSpec& spec) { ExpectEqual(RunOnce(config, spec, longer), wanted); });
}

TEST(InvariantsOfStrategies, Bf16AgreesBetweenRanks) {
  const ModelConfig config = testing::TinyConfig();
  const Batch batch = MakeBatch(70, {{0, 9}, {12, 40}, {40, 63}}, config.vocab_size);
  const ModelResult exact = RunOnce(config, kOneRank, batch);
  const LayoutKind zigzag[] = {LayoutKind::kZigzag};
  ForEachSpec({1, 2, 3, 4}, zigzag, [&](RanksSpec spec) {
    spec.dtype = DType::kBFloat16;
    const ModelResult got = RunOnce(config, spec, batch);
    EXPECT_NEAR(got.loss / exact.loss, 1, 1e-2);
    for (const auto& [name, gradient] : exact.gradients) {
      EXPECT_LT(testing::RelativeDifference(got.gradients.at(name), gradient), 5e-2) << name;
    }
    ExpectSameBits(RunOnce(config, spec, batch), got);
  });
}

}  // namespace
}  // namespace longspan
