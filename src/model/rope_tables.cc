#include "model/rope_tables.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace longspan {
namespace {

// (num_rows, D/2, 2): cos and sin of the angle at position row · stride.
Buffer MakeTable(const std::vector<double>& inverse_frequencies, int64_t num_rows, int64_t stride) {
  Buffer table(DType::kFloat32, {num_rows, static_cast<int64_t>(inverse_frequencies.size()), 2});
  float* out = table.tensor().data<float>();
  for (int64_t row = 0; row < num_rows; ++row) {
    for (const double frequency : inverse_frequencies) {
      const double angle = static_cast<double>(row * stride) * frequency;
      *out++ = static_cast<float>(std::cos(angle));
      *out++ = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace

OwnedRopeTables::OwnedRopeTables(const ModelConfig& config, int64_t num_positions) {
  const std::vector<double> frequencies = RopeInverseFrequencies(config);
  const int64_t periods = (num_positions + RopeTables::kPeriod - 1) / RopeTables::kPeriod;
  coarse_ = MakeTable(frequencies, std::max<int64_t>(1, periods), RopeTables::kPeriod);
  fine_ = MakeTable(frequencies, RopeTables::kPeriod, 1);
}

}  // namespace longspan
