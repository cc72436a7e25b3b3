#include "eval/loss_by_context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

namespace longspan {
namespace {

struct Sample {
  int64_t context;
  double loss;
};

void ExpectMean(const LossBucket& bucket, const std::vector<Sample>& samples) {
  double n = 0, mean = 0, squares = 0;
  for (const Sample& s : samples)
    if (bucket.context_from <= s.context && s.context <= bucket.context_to) {
      n += 1;
      mean += s.loss;
    }
  mean /= n;
  for (const Sample& s : samples)
    if (bucket.context_from <= s.context && s.context <= bucket.context_to)
      squares += (s.loss - mean) * (s.loss - mean);
  EXPECT_EQ(static_cast<double>(bucket.targets), n);
  EXPECT_NEAR(bucket.loss, mean, 1e-12);
  EXPECT_NEAR(bucket.perplexity(), std::exp(mean), 1e-10);
  ASSERT_EQ(bucket.standard_error.has_value(), n > 1);
  if (n > 1) {
    EXPECT_NEAR(*bucket.standard_error, std::sqrt(squares / (n - 1) / n), 1e-10);
  }
}

TEST(LossByContext, BucketsArePowersOfTwo) {
  std::mt19937_64 random(1);
  for (const int64_t longest : {1, 2, 3, 8, 100, 1000}) {
    LossByContext losses(longest);
    std::vector<Sample> samples;
    for (int i = 0; i < 300; ++i) {
      const auto power = int64_t{1} << random() % (1 + std::bit_width(static_cast<uint64_t>(longest)));
      const int64_t high = std::min(power, longest);
      const auto context = high - static_cast<int64_t>(random() % static_cast<uint64_t>((high + 1) / 2));
      samples.push_back({context, static_cast<double>(random() % 1000) / 100});
      losses.Add(context, samples.back().loss);
    }
    int64_t expected_from = 1, expected_to = 1, targets = 0;
    for (const LossBucket& bucket : losses.Buckets()) {
      EXPECT_EQ(bucket.context_from, expected_from);
      EXPECT_EQ(bucket.context_to, std::min(expected_to, longest));
      expected_to *= 2;
      expected_from = bucket.context_to + 1;
      targets += bucket.targets;
      ExpectMean(bucket, samples);
    }
    EXPECT_EQ(expected_from, longest + 1);
    EXPECT_EQ(targets, 300);
    EXPECT_EQ(losses.Whole().context_to, longest);
    ExpectMean(losses.Whole(), samples);
  }
}

TEST(LossByContext, EmptyBucketsAreLeftOut) {
  LossByContext losses(64);
  losses.Add(1, 2);
  losses.Add(33, 4);
  const auto buckets = losses.Buckets();
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[1].context_from, 33);
  EXPECT_EQ(buckets[1].context_to, 64);
  EXPECT_FALSE(buckets[1].standard_error.has_value());
  EXPECT_EQ(losses.Whole().loss, 3);
}

TEST(LossByContext, SumsOfRanksAdd) {
  LossByContext a(8), b(8), all(8);
  for (const Sample s : {Sample{1, 2}, {5, 1}, {6, 7}}) {
    a.Add(s.context, s.loss);
    all.Add(s.context, s.loss);
  }
  for (const Sample s : {Sample{2, 3}, {7, 0.5}}) {
    b.Add(s.context, s.loss);
    all.Add(s.context, s.loss);
  }
  for (size_t i = 0; i < a.sums().size(); ++i) a.sums()[i] += b.sums()[i];
  EXPECT_EQ(a.Whole().loss, all.Whole().loss);
  EXPECT_EQ(a.Buckets().size(), all.Buckets().size());
}

}  // namespace
}  // namespace longspan
