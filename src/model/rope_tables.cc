#include "model/rope_tables.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace longspan {
namespace {

// (num_rows, rotary_dim / 2, 2): cos and sin of the angle at position row · stride, times `scale`; or their
// size alone.
Buffer MakeTable(const std::vector<double>& inverse_frequencies, int64_t num_rows, int64_t stride,
                 double scale, bool measure) {
  const int64_t num_columns = std::ssize(inverse_frequencies);
  if (measure) return Buffer::Measured(DType::kFloat32, {num_rows, num_columns, 2});
  Buffer table(DType::kFloat32, {num_rows, num_columns, 2});
  float* out = table.tensor().data<float>();
  for (int64_t row = 0; row < num_rows; ++row) {
    for (const double frequency : inverse_frequencies) {
      const double angle = static_cast<double>(row * stride) * frequency;
      *out++ = static_cast<float>(scale * std::cos(angle));
      *out++ = static_cast<float>(scale * std::sin(angle));
    }
  }
  return table;
}

}  // namespace

OwnedRopeTables::OwnedRopeTables(const RopeConfig& rope, int64_t head_dim, int64_t num_positions,
                                 bool measure)
    : rope_(rope), short_(MakePair(rope, head_dim, num_positions, /*long_factors=*/false, measure)) {
  if (rope.UsesLongFactors(num_positions))
    long_ = MakePair(rope, head_dim, num_positions, /*long_factors=*/true, measure);
}

OwnedRopeTables::Pair OwnedRopeTables::MakePair(const RopeConfig& rope, int64_t head_dim,
                                                int64_t num_positions, bool long_factors, bool measure) {
  const std::vector<double> frequencies = RopeInverseFrequencies(rope, head_dim, long_factors);
  const int64_t periods = (num_positions + RopeTables::kPeriod - 1) / RopeTables::kPeriod;
  // A phase is the product of an entry of each, so the factor goes into one.
  return {.coarse = MakeTable(frequencies, std::max<int64_t>(1, periods), RopeTables::kPeriod, 1, measure),
          .fine = MakeTable(frequencies, RopeTables::kPeriod, 1, rope.attention_factor, measure)};
}

}  // namespace longspan
