#include "core/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace longspan {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers that come with Random123 (kat_vectors, "philox4x32 10").
TEST(Philox, MatchesThePublishedAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandom, IsAFunctionOfSeedStreamAndIndex) {
  const CounterRandom a(1, "a"), same(1, "a"), seed(2, "a"), high_seed(1 + (uint64_t{1} << 32), "a"),
      stream(1, "b");
  std::set<uint64_t> seen;
  for (const uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}}) {
    EXPECT_EQ(a.Bits(index), same.Bits(index));
    EXPECT_EQ(a.Normal(index), same.Normal(index));
    for (const CounterRandom& random : {a, seed, high_seed, stream}) seen.insert(random.Bits(index));
  }
  EXPECT_EQ(seen.size(), 16u);
}

// Pins the values: a checkpoint or a shuffle made today must be made the same tomorrow.
TEST(CounterRandom, BitsAreThoseOfTheBlock) {
  // The FNV-1a hash of an empty name is its offset basis.
  const Words words = Philox4x32({7, 0, 0x84222325, 0xcbf29ce4}, {3, 1});
  EXPECT_EQ(CounterRandom(3 + (uint64_t{1} << 32), "").Bits(7), uint64_t{words[1]} << 32 | words[0]);
}

TEST(CounterRandom, UniformFillsTheUnitInterval) {
  const CounterRandom random(5, "uniform");
  constexpr int kCount = 100000;
  double sum = 0, squares = 0, least = 1, most = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = random.Uniform(i);
    sum += x;
    squares += x * x;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  EXPECT_GE(least, 0);
  EXPECT_LT(least, 1e-3);
  EXPECT_LT(most, 1);
  EXPECT_GT(most, 1 - 1e-3);
  EXPECT_NEAR(sum / kCount, 0.5, 5 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 5e-3);
}

TEST(CounterRandom, NormalHasTheMomentsOfANormal) {
  const CounterRandom random(6, "normal");
  constexpr int kCount = 100000;
  double moments[5] = {};
  int beyond_two = 0;
  double product = 0, previous = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = random.Normal(i);
    ASSERT_TRUE(std::isfinite(x));
    for (int p = 1; p <= 4; ++p) moments[p] += std::pow(x, p) / kCount;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
    product += x * previous / kCount;
    previous = x;
  }
  EXPECT_NEAR(moments[1], 0, 0.016);
  EXPECT_NEAR(moments[2], 1, 0.023);
  EXPECT_NEAR(moments[3], 0, 0.062);
  EXPECT_NEAR(moments[4], 3, 0.16);
  EXPECT_NEAR(beyond_two / static_cast<double>(kCount), 0.0455, 0.0033);
  EXPECT_NEAR(product, 0, 0.016);
}

TEST(CounterRandom, BelowIsEvenAndInRange) {
  const CounterRandom random(7, "below");
  std::vector<int> counts(7);
  for (uint64_t i = 0; i < 70000; ++i) ++counts.at(random.Below(7, i));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.Below(1, 3), 0u);
  // With the largest bound almost all bits of the block's upper half come through.
  for (uint64_t i = 0; i < 100; ++i) {
    const uint64_t below = random.Below(~uint64_t{0}, i);
    EXPECT_LE(random.Bits(i) - below, 1u);
  }
}

}  // namespace
}  // namespace longspan
