#include "data/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "support/expect_error.h"
#include "support/fake_corpus.h"

namespace longspan {
namespace {

using testing::CountingCorpus;
using testing::ExpectError;
using testing::FakeCorpus;
using testing::Ids;

TEST(Dealer, EveryShareIsKeptToLessThanOne) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    std::vector<double> weights(1 + random() % 25);
    for (double& weight : weights) weight = std::exp(static_cast<double>(random() % 1000) / 200);
    if (round == 0) weights = {1, 1e-9, 1};
    if (round == 1) weights = {0.1, 0.2, 0.7};
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    Dealer dealer(weights);
    std::vector<int64_t> counts(weights.size(), 0);
    for (int n = 1; n <= 2000; ++n) {
      ++counts[dealer.Next()];
      for (size_t i = 0; i < weights.size(); ++i)
        ASSERT_LT(std::abs(static_cast<double>(counts[i]) - n * weights[i] / sum), 1 + 1e-9)
            << "source " << i << " of " << weights.size() << " after " << n;
    }
    EXPECT_EQ(dealer.counts(), counts);
  }
}

TEST(Dealer, GoesOnFromCounts) {
  const std::vector<double> weights = {3, 1, 2.5, 0.3};
  Dealer straight(weights);
  for (int n = 0; n < 300; ++n) {
    Dealer resumed(weights);
    resumed.set_counts(straight.counts());
    Dealer copy = straight;
    for (int i = 0; i < 20; ++i) EXPECT_EQ(resumed.Next(), copy.Next());
    straight.Next();
  }
}

class MixtureTest : public ::testing::Test {
 protected:
  DataSource Source(const std::string& path, double weight, const std::vector<int64_t>& lengths) {
    return {path, weight, std::make_unique<FakeCorpus>(CountingCorpus(lengths, random_))};
  }
  // Tokens are numbered within a source, so lengths tell them apart where it matters.
  std::vector<DataSource> Sources(double weight_a, double weight_b) {
    std::vector<DataSource> sources;
    sources.push_back(Source("a", weight_a, {5, 9, 2, 31, 7, 7}));
    sources.push_back(Source("b", weight_b, {3, 4, 14}));
    return sources;
  }
  static MixtureReader Reader(const std::vector<DataSource>& sources, Packing packing = Packing::kBestFit) {
    return MixtureReader(sources, 10, 3, true, packing);
  }

  std::mt19937 random_{7};
};

TEST_F(MixtureTest, EachSourceIsReadOnItsOwn) {
  const std::vector<DataSource> sources = Sources(0.7, 0.3);
  MixtureReader mixture = Reader(sources);
  SequenceReader alone[] = {{*sources[0].corpus, 10, 3}, {*sources[1].corpus, 10, 3}};
  for (int n = 0; n < 100; ++n) {
    const MixtureReader::Plan plan = mixture.NextPlan();
    const Batch got = mixture.Read(plan), wanted = alone[plan.source].Next();
    EXPECT_EQ(got.tokens, wanted.tokens);
    EXPECT_EQ(got.targets, wanted.targets);
  }
  const std::vector<SourcePosition> positions = mixture.positions();
  EXPECT_EQ(positions[0].num_sequences, 70);
  EXPECT_EQ(positions[1].num_sequences, 30);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(positions[i].reader, alone[i].position());
  EXPECT_GT(positions[0].reader.epoch, 5);
  EXPECT_GT(positions[1].reader.epoch, 5);
}

TEST_F(MixtureTest, ResumesFromAnyPosition) {
  const std::vector<DataSource> sources = Sources(1, 2);
  for (const PackingRow& packing : PackingTable()) {
    MixtureReader straight = Reader(sources, packing.packing);
    std::vector<std::vector<SourcePosition>> positions;
    std::vector<Ids> tokens;
    for (int n = 0; n < 60; ++n) {
      positions.push_back(straight.positions());
      tokens.push_back(straight.Next().tokens);
    }
    for (size_t n = 0; n < 60; ++n) {
      MixtureReader resumed = Reader(sources, packing.packing);
      resumed.Seek(positions[n]);
      EXPECT_EQ(resumed.positions(), positions[n]);
      for (size_t i = n; i < std::min<size_t>(60, n + 5); ++i) EXPECT_EQ(resumed.Next().tokens, tokens[i]);
    }
  }
}

TEST_F(MixtureTest, ResumesAsAnotherMixture) {
  const std::vector<DataSource> sources = Sources(1, 1);
  MixtureReader reader = Reader(sources);
  for (int n = 0; n < 21; ++n) reader.Next();
  const std::vector<SourcePosition> saved = reader.positions();

  // Other weights hold from now on: what was read under the old ones is not made up for.
  const std::vector<DataSource> reweighted = Sources(3, 1);
  MixtureReader after = Reader(reweighted);
  after.Seek(saved);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(after.positions()[i].reader, saved[i].reader);
    EXPECT_EQ(after.positions()[i].num_sequences, 0);
  }
  for (int n = 0; n < 40; ++n) after.Next();
  EXPECT_EQ(after.positions()[0].num_sequences, 30);

  // A new source begins at its beginning; one that is gone is gone.
  std::vector<DataSource> changed;
  changed.push_back(Source("b", 1, {3, 4, 14}));
  changed.push_back(Source("c", 1, {8, 8}));
  MixtureReader other = Reader(changed);
  other.Seek(saved);
  EXPECT_EQ(other.positions()[0].reader, saved[1].reader);
  EXPECT_EQ(other.positions()[1].reader, ReaderPosition{});

  // Alone, its path does not matter; among others, something must be known.
  std::vector<DataSource> moved;
  moved.push_back(Source("elsewhere/a", 1, {5, 9, 2, 31, 7, 7}));
  MixtureReader alone = Reader(moved);
  ExpectError({"a, b", "data_path"}, [&] { alone.Seek(saved); });
  alone.Seek(std::span(saved).first(1));
  EXPECT_EQ(alone.positions()[0].reader, saved[0].reader);

  std::vector<SourcePosition> bad = saved;
  bad[1].reader = {0, 3, 0, {}};
  ExpectError({"b: ", "no place"}, [&] { Reader(sources).Seek(bad); });
  bad = saved;
  for (const int64_t num_sequences : {int64_t{-1}, int64_t{1} << 53, std::numeric_limits<int64_t>::max()}) {
    bad[0].num_sequences = num_sequences;
    ExpectError({"a: ", std::to_string(num_sequences)}, [&] { Reader(sources).Seek(bad); });
  }
}

}  // namespace
}  // namespace longspan
