#include "bench/measure.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

namespace longspan::bench {
namespace {

TEST(BenchMeasure, Median) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 4}), 4);
  EXPECT_EQ(Median({9, 1, 4, 2}), 3);
}

TEST(BenchMeasure, TimesEveryRunButTheFirst) {
  // Each run but the third after the warm-up sleeps a millisecond; that one and the warm-up sleep longer.
  int runs = 0;
  const Measured measured = Measure(DType::kFloat32, 1, 3, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(runs == 0 ? 200 : runs == 3 ? 50 : 1));
    ++runs;
  });
  EXPECT_EQ(runs, 4);
  EXPECT_GE(measured.seconds_min, 0.001);
  EXPECT_LE(measured.seconds_min, measured.seconds);
  EXPECT_LE(measured.seconds, measured.seconds_max);
  EXPECT_GE(measured.seconds_max, 0.05);
  EXPECT_GT(measured.peak.flops_per_second, 0);
  EXPECT_FALSE(measured.peak.unit.empty());
}

TEST(BenchMeasure, RandomBuffersAreNormalAndRepeat) {
  const Buffer a = RandomBuffer("q", DType::kFloat32, {64, 128}),
               b = RandomBuffer("q", DType::kFloat32, {64, 128});
  const Buffer other = RandomBuffer("k", DType::kFloat32, {64, 128});
  const Buffer rounded = RandomBuffer("q", DType::kBFloat16, {64, 128});
  const auto bytes = static_cast<size_t>(a.tensor().num_bytes());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), bytes), 0);
  EXPECT_NE(std::memcmp(a.data(), other.data(), bytes), 0);
  double sum = 0, squares = 0;
  const int64_t n = a.tensor().num_elements();
  for (int64_t i = 0; i < n; ++i) {
    const float x = a.tensor().data<float>()[i];
    EXPECT_EQ(rounded.tensor().data<BFloat16>()[i].bits, BFloat16(x).bits);
    sum += x;
    squares += double{x} * x;
  }
  // Five deviations of the mean and of the mean square.
  EXPECT_NEAR(sum / static_cast<double>(n), 0, 5 / std::sqrt(static_cast<double>(n)));
  EXPECT_NEAR(squares / static_cast<double>(n), 1, 5 * std::sqrt(2 / static_cast<double>(n)));
}

}  // namespace
}  // namespace longspan::bench
