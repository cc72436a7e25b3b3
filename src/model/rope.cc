#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace longspan {
namespace {

// llama3. Turns over the original context: many are kept, few are stretched by `factor`, those between are
// blended.
double Llama3Frequency(const RopeConfig& rope, double frequency) {
  const double turns = rope.original_max_position_embeddings * frequency / (2 * std::numbers::pi);
  const double kept =
      std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
  return kept * frequency + (1 - kept) * frequency / rope.factor;
}

// yarn (Peng et al. 2023, "YaRN", section 3.2): as llama3, but blended along a ramp over dimensions, which
// ends where a frequency makes beta_fast and beta_slow turns over the original context.
struct YarnRamp {
  YarnRamp(const RopeConfig& rope, double dim) {
    const auto dimension_of = [&](double turns) {
      return dim * std::log(rope.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(rope.theta));
    };
    low = dimension_of(rope.beta_fast);
    high = dimension_of(rope.beta_slow);
    if (rope.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;
  }
  // How much of dimension i is stretched.
  double operator()(double i) const { return std::clamp((i - low) / (high - low), 0.0, 1.0); }

  double low, high;
};

}  // namespace

int64_t RopeConfig::rotary_dim(int64_t head_dim) const {
  return static_cast<int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
}

std::vector<double> RopeInverseFrequencies(const RopeConfig& rope, int64_t head_dim, bool long_factors) {
  using Kind = RopeConfig::Kind;
  const int64_t dim = rope.rotary_dim(head_dim);
  const std::vector<double>& stretch = long_factors ? rope.long_factor : rope.short_factor;
  CHECK(rope.kind != Kind::kLongRope || static_cast<int64_t>(stretch.size()) == dim / 2);
  CHECK(rope.kind == Kind::kLongRope || !long_factors);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    switch (rope.kind) {
      case Kind::kDefault:
        frequencies.push_back(frequency);
        break;
      case Kind::kLinear:
        frequencies.push_back(frequency / rope.factor);
        break;
      case Kind::kLlama3:
        frequencies.push_back(Llama3Frequency(rope, frequency));
        break;
      case Kind::kYarn: {
        const double stretched = YarnRamp(rope, static_cast<double>(dim))(static_cast<double>(i));
        frequencies.push_back(stretched * frequency / rope.factor + (1 - stretched) * frequency);
        break;
      }
      case Kind::kLongRope:
        frequencies.push_back(frequency / stretch[static_cast<size_t>(i)]);
        break;
    }
  }
  return frequencies;
}

}  // namespace longspan
