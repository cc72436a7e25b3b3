// Frequencies of every kind, against transformers' modeling_rope_utils.py in float64.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longspan {
namespace {

using Kind = RopeConfig::Kind;

void ExpectFrequencies(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i] / wanted[i], 1, 1e-11) << i << ": " << got[i];
}

TEST(Rope, Default) {
  ExpectFrequencies(RopeInverseFrequencies({.theta = 10000}, 8), {1, 0.1, 0.01, 0.001});
  ExpectFrequencies(RopeInverseFrequencies({.theta = 10000, .partial_rotary_factor = 0.5}, 8), {1, 0.01});
}

TEST(Rope, Linear) {
  ExpectFrequencies(RopeInverseFrequencies({.kind = Kind::kLinear, .factor = 4}, 8),
                    {0.25, 0.025, 0.0025, 0.00025});
}

TEST(Rope, Llama3) {
  const std::vector<double> scaled = RopeInverseFrequencies({.kind = Kind::kLlama3,
                                                             .theta = 500000,
                                                             .factor = 32,
                                                             .low_freq_factor = 1,
                                                             .high_freq_factor = 4,
                                                             .original_max_position_embeddings = 8192},
                                                            64);
  ASSERT_EQ(scaled.size(), 32u);
  for (size_t i = 0; i < scaled.size(); ++i) {
    const double plain = std::pow(500000.0, -static_cast<double>(i) / 32);
    if (i < 15) {
      EXPECT_DOUBLE_EQ(scaled[i], plain) << i;
    }
    if (i > 17) {
      EXPECT_DOUBLE_EQ(scaled[i], plain / 32) << i;
    }
  }
  EXPECT_NEAR(scaled[15], 1.29054793e-3, 1e-11);
  EXPECT_NEAR(scaled[16], 4.29556797e-4, 1e-12);
  EXPECT_NEAR(scaled[17], 9.7082878e-5, 1e-12);
}

TEST(Rope, Yarn) {
  RopeConfig rope = {.kind = Kind::kYarn, .factor = 4, .original_max_position_embeddings = 1024};
  ExpectFrequencies(RopeInverseFrequencies(rope, 16), {1, 0.316227766017, 0.08125, 0.0197642353761, 0.004375,
                                                       0.000790569415042, 0.00025, 7.90569415042e-05});
  rope.factor = 8;
  rope.original_max_position_embeddings = 500;
  rope.beta_fast = 6;
  rope.beta_slow = 0.5;
  rope.truncate = false;
  ExpectFrequencies(RopeInverseFrequencies(rope, 16),
                    {1, 0.316227766017, 0.1, 0.0219473347055, 0.0028863573388, 0.000395284707521, 0.000125,
                     3.95284707521e-05});
  rope = {.kind = Kind::kYarn, .theta = 1e6, .factor = 4, .original_max_position_embeddings = 4096};
  ExpectFrequencies(RopeInverseFrequencies(rope, 16),
                    {1, 0.177827941004, 0.0237170824513, 0.00281170662595, 0.00025, 4.4456985251e-05,
                     7.90569415042e-06, 1.40585331298e-06});
  // A ramp that would begin before the first dimension, and one that would end behind the last.
  rope = {.kind = Kind::kYarn, .factor = 4, .original_max_position_embeddings = 100};
  ExpectFrequencies(RopeInverseFrequencies(rope, 16), {1, 0.237170824513, 0.05, 0.00790569415042, 0.0025,
                                                       0.000790569415042, 0.00025, 7.90569415042e-05});
  rope.original_max_position_embeddings = 1e6;
  rope.beta_fast = 3000;
  rope.beta_slow = 0.001;
  ExpectFrequencies(RopeInverseFrequencies(rope, 16), {1, 0.316227766017, 0.1, 0.0316227766017, 0.009375,
                                                       0.00276699295265, 0.0008125, 0.000237170824513});
  // Both ends of the ramp in one place: a step there.
  rope = {.kind = Kind::kYarn, .theta = 1e6, .factor = 4, .original_max_position_embeddings = 4096};
  rope.beta_fast = rope.beta_slow = 4096 / (2 * 3.14159265358979323846);
  const std::vector<double> step = RopeInverseFrequencies(rope, 16);
  EXPECT_DOUBLE_EQ(step[0], 1);
  EXPECT_DOUBLE_EQ(step[1], 0.25 * std::pow(1e6, -1.0 / 8));
}

TEST(Rope, LongRope) {
  const RopeConfig rope = {.kind = Kind::kLongRope,
                           .original_max_position_embeddings = 512,
                           .short_factor = {1, 1.1, 1.3, 1.5},
                           .long_factor = {1, 2, 3, 4}};
  ExpectFrequencies(RopeInverseFrequencies(rope, 8), {1, 0.1 / 1.1, 0.01 / 1.3, 0.001 / 1.5});
  ExpectFrequencies(RopeInverseFrequencies(rope, 8, /*long_factors=*/true), {1, 0.05, 0.01 / 3, 0.00025});
  EXPECT_FALSE(rope.UsesLongFactors(512));
  EXPECT_TRUE(rope.UsesLongFactors(513));
  EXPECT_FALSE((RopeConfig{.kind = Kind::kYarn, .original_max_position_embeddings = 8}).UsesLongFactors(9));
}

}  // namespace
}  // namespace longspan
