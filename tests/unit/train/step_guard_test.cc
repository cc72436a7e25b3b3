#include "train/step_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"

namespace longspan {
namespace {

TrainConfig Config(int64_t interval, double factor) {
  TrainConfig config;
  config.skip_step_on_spikes = true;
  config.skip_step_interval = interval;
  config.skip_step_scaling_factor = factor;
  return config;
}

// What is meant, of all steps before and without a window that moves.
bool IsSpike(const std::vector<StepSample>& before, const StepSample& step, int64_t interval, double factor) {
  const int64_t n = std::min<int64_t>(interval, std::ssize(before));
  if (n < std::max<int64_t>(2, interval / 2 - 1)) return false;
  for (const auto what : {&StepSample::loss, &StepSample::grad_norm}) {
    double sum = 0, squares = 0;
    const auto last = std::span(before).last(static_cast<size_t>(n));
    for (const StepSample& sample : last) sum += sample.*what;
    const double mean = sum / static_cast<double>(n);
    for (const StepSample& sample : last) squares += std::pow(sample.*what - mean, 2);
    if (step.*what - mean > factor * std::sqrt(squares / static_cast<double>(n - 1))) return true;
  }
  return false;
}

TEST(StepGuard, SkipsWhatLiesFarAboveTheLastSteps) {
  int num_skipped = 0;
  for (const int64_t interval : {2, 3, 5, 16}) {
    for (const double factor : {0.5, 2.0, 4.0}) {
      StepGuard guard(Config(interval, factor));
      const CounterRandom random(3, "steps");
      std::vector<StepSample> before;
      for (uint64_t i = 0; i < 200; ++i) {
        StepSample step = {5 + 0.01 * static_cast<double>(random.Below(100, 2 * i)),
                           1 + 0.01 * static_cast<double>(random.Below(100, 2 * i + 1))};
        if (i % 23 == 20) step.loss *= 3;
        if (i % 31 == 20) step.grad_norm *= 10;
        if (i == 150) step = before.back();  // as before is none
        const std::string why = guard.Judge(step);
        EXPECT_EQ(!why.empty(), IsSpike(before, step, interval, factor))
            << "interval " << interval << ", factor " << factor << ", step " << i << ": " << why;
        num_skipped += why.empty() ? 0 : 1;
        before.push_back(step);
      }
    }
  }
  EXPECT_GT(num_skipped, 300);
}

TEST(StepGuard, SaysWhatWasAboveWhat) {
  StepGuard guard(Config(4, 6));
  for (const double loss : {3.0, 1.0}) EXPECT_EQ(guard.Judge({loss, 1}), "");
  EXPECT_EQ(guard.Judge({2 + 7 * std::sqrt(2.0), 1}),
            "loss 11.899 is 7.0 standard deviations above the mean of the last 2 steps");
  StepGuard norms(Config(4, 6));
  for (const double norm : {3.0, 1.0}) EXPECT_EQ(norms.Judge({1, norm}), "");
  EXPECT_EQ(norms.Judge({0, 2 + 7 * std::sqrt(2.0)}),
            "gradient norm 11.899 is 7.0 standard deviations above the mean of the last 2 steps");
}

TEST(StepGuard, ANewLevelBecomesTheUsualOne) {
  StepGuard guard(Config(8, 3));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(guard.Judge({1 + 0.01 * (i % 3), 1}), "");
  int num_skipped = 0;
  for (int i = 0; i < 20; ++i) num_skipped += guard.Judge({5 + 0.01 * (i % 3), 1}).empty() ? 0 : 1;
  EXPECT_GE(num_skipped, 1);
  EXPECT_LE(num_skipped, 3);
}

TEST(StepGuard, GoesOnFromItsSamples) {
  const auto step_of = [](int i) { return StepSample{1 + 0.1 * (i * 7 % 5), 2 + 0.1 * (i * 3 % 7)}; };
  StepGuard straight(Config(6, 1));
  for (int i = 0; i < 10; ++i) straight.Judge(step_of(i));
  ASSERT_EQ(straight.samples().size(), 6u);
  EXPECT_EQ(straight.samples().front(), step_of(4));
  EXPECT_EQ(straight.samples().back(), step_of(9));
  StepGuard resumed(Config(6, 1)), shorter(Config(3, 1));
  resumed.Restore(straight.samples());
  shorter.Restore(straight.samples());
  EXPECT_EQ(shorter.samples().size(), 3u);
  EXPECT_EQ(shorter.samples().front(), step_of(7));
  for (int i = 10; i < 40; ++i) EXPECT_EQ(resumed.Judge(step_of(i)), straight.Judge(step_of(i))) << i;
}

TEST(StepGuard, SkipsAndRemembersNothingWhereNobodyAsked) {
  StepGuard guard{TrainConfig{}};
  for (int i = 0; i < 300; ++i) EXPECT_EQ(guard.Judge({i < 299 ? 1.0 : 1e30, 1}), "");
  EXPECT_TRUE(guard.samples().empty());
  EXPECT_FALSE(guard.skips_nan());
  const StepSample sample[] = {{1, 2}};
  guard.Restore(sample);
  EXPECT_TRUE(guard.samples().empty());
}

}  // namespace
}  // namespace longspan
