#include "model/rope_tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

namespace longspan {
namespace {

constexpr int64_t kHeadDim = 64;

RopeConfig Config() { return {.theta = 500000}; }

// x rotated to each of `positions`: (n, 1, D).
Buffer Rotated(Backend& backend, const OwnedRopeTables& tables, const std::vector<float>& x,
               const std::vector<int64_t>& positions) {
  const int64_t n = static_cast<int64_t>(positions.size()), width = static_cast<int64_t>(x.size());
  Buffer out(DType::kFloat32, {n, 1, width});
  const Buffer at(DType::kInt64, {n});
  std::copy(positions.begin(), positions.end(), at.tensor().data<int64_t>());
  for (int64_t i = 0; i < n; ++i) std::copy(x.begin(), x.end(), out.tensor().data<float>() + i * width);
  backend.Rope(out.tensor(), at.tensor(), tables.tables(0), /*inverse=*/false);
  return out;
}

TEST(RopeTables, PhasesEqualDoubleAtAnyPosition) {
  const std::vector<int64_t> positions = {0, 1, 257, 4095, 4096, 15962, 1048575, 13999999};
  const OwnedRopeTables tables(Config(), kHeadDim, positions.back() + 1);
  EXPECT_EQ(tables.tables(0).coarse.dim(0), 3418);
  EXPECT_EQ(tables.tables(0).fine.dim(0), 4096);
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  std::vector<float> x(64);  // (1, 0) in every pair: what comes out is (cos, sin)
  for (size_t i = 0; i < 32; ++i) x[i] = 1;
  const Buffer rotated = Rotated(*backend, tables, x, positions);
  for (size_t i = 0; i < positions.size(); ++i) {
    const float* row = rotated.tensor().data<float>() + i * 64;
    for (int d = 0; d < 32; ++d) {
      const double angle = static_cast<double>(positions[i]) * std::pow(500000.0, -d / 32.0);
      EXPECT_NEAR(row[d], std::cos(angle), 2e-7) << positions[i] << " " << d;
      EXPECT_NEAR(row[d + 32], std::sin(angle), 2e-7) << positions[i] << " " << d;
    }
  }
}

TEST(RopeTables, ScoresDependOnDistanceAlone) {
  const OwnedRopeTables tables(Config(), kHeadDim, 1000006);
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  std::vector<float> q(64), k(64);
  for (size_t i = 0; i < 64; ++i) {
    q[i] = static_cast<float>(std::sin(1.0 + static_cast<double>(i)));
    k[i] = static_cast<float>(std::cos(2.0 * static_cast<double>(i)));
  }
  const Buffer rq = Rotated(*backend, tables, q, {5, 1000005}),
               rk = Rotated(*backend, tables, k, {3, 1000003});
  double scores[2] = {0, 0};
  for (size_t i = 0; i < 128; ++i)
    scores[i / 64] += static_cast<double>(rq.tensor().data<float>()[i]) * rk.tensor().data<float>()[i];
  EXPECT_NEAR(scores[1], scores[0], 2e-5);
  EXPECT_GT(std::abs(scores[0]), 0.5);
}

TEST(RopeTables, ShortSequencesHaveOneCoarseRow) {
  EXPECT_EQ(OwnedRopeTables(Config(), kHeadDim, 1).tables(0).coarse.dim(0), 1);
  EXPECT_EQ(OwnedRopeTables(Config(), kHeadDim, 4096).tables(0).coarse.dim(0), 1);
  EXPECT_EQ(OwnedRopeTables(Config(), kHeadDim, 4097).tables(0).coarse.dim(0), 2);
}

}  // namespace
}  // namespace longspan
