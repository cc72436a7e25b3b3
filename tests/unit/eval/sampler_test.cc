#include "eval/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/check.h"

namespace longspan {
namespace {

const std::vector<float> kLogits = {0.5f, 2, -1, 2, 0, 1};

// How often each token comes in many draws.
std::map<int32_t, double> Frequencies(const SamplerOptions& options) {
  constexpr int kDraws = 20000;
  Sampler sampler(options);
  std::map<int32_t, double> frequencies;
  for (int i = 0; i < kDraws; ++i) frequencies[sampler.Next(kLogits)] += 1.0 / kDraws;
  return frequencies;
}

// exp(logit / temperature) of these tokens over its sum.
void ExpectSoftmaxOver(const std::vector<int32_t>& tokens, const SamplerOptions& options) {
  const auto weight = [&](int32_t token) {
    return std::exp(static_cast<double>(kLogits[static_cast<size_t>(token)]) / options.temperature);
  };
  double sum = 0;
  for (const int32_t token : tokens) sum += weight(token);
  const auto frequencies = Frequencies(options);
  EXPECT_EQ(frequencies.size(), tokens.size());
  for (const int32_t token : tokens) EXPECT_NEAR(frequencies.at(token), weight(token) / sum, 0.015) << token;
}

TEST(Sampler, GreedyIsTheFirstOfTheLargest) {
  Sampler sampler({});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sampler.Next(kLogits), 1);
}

TEST(Sampler, TemperatureIsSoftmax) {
  ExpectSoftmaxOver({0, 1, 2, 3, 4, 5}, {.temperature = 1});
  ExpectSoftmaxOver({0, 1, 2, 3, 4, 5}, {.temperature = 1.7, .seed = 3});
}

TEST(Sampler, TopKAndTopP) {
  ExpectSoftmaxOver({1}, {.temperature = 1, .top_k = 1});  // of two equal ones the first
  ExpectSoftmaxOver({1, 3, 5}, {.temperature = 1, .top_k = 3});
  ExpectSoftmaxOver({0, 1, 2, 3, 4, 5}, {.temperature = 1, .top_k = 9});
  // The probabilities at temperature 1 are 0.09, 0.38, 0.02, 0.38, 0.05, 0.14.
  ExpectSoftmaxOver({1}, {.temperature = 1, .top_p = 0});
  ExpectSoftmaxOver({1}, {.temperature = 1, .top_p = 0.3});
  ExpectSoftmaxOver({1, 3}, {.temperature = 1, .top_p = 0.5});
  ExpectSoftmaxOver({1, 3, 5}, {.temperature = 1, .top_p = 0.8});
  // Of what top_k leaves, 0.5 and 0.5, each is enough.
  ExpectSoftmaxOver({1}, {.temperature = 1, .top_k = 2, .top_p = 0.45});
  ExpectSoftmaxOver({1, 3}, {.temperature = 1, .top_k = 2, .top_p = 0.6});
}

TEST(Sampler, TheSameSeedDrawsTheSame) {
  const auto draw = [](uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<int32_t> tokens;
    for (int i = 0; i < 30; ++i) tokens.push_back(sampler.Next(kLogits));
    return tokens;
  };
  EXPECT_EQ(draw(5), draw(5));
  EXPECT_NE(draw(5), draw(6));
}

TEST(Sampler, HugeLogitsAndThoseThatAreNone) {
  Sampler sampler({.temperature = 0.01});
  EXPECT_EQ(sampler.Next(std::vector<float>{1e30f, -1e30f, 0}), 0);
  EXPECT_EQ(sampler.Next(std::vector<float>{-std::numeric_limits<float>::infinity(), 3}), 1);
  EXPECT_THROW(sampler.Next(std::vector<float>{std::nanf(""), std::nanf("")}), Error);
}

}  // namespace
}  // namespace longspan
