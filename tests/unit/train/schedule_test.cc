#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace longspan {
namespace {

TrainConfig Config(const char* type, int64_t steps) {
  TrainConfig c;
  c.lr_schedule_type = type;
  c.learning_rate = 2.0;
  c.learning_rate_schedule_steps = steps;
  c.warmup_steps_fraction = 0.2;
  c.learning_rate_final_fraction = 0.1;
  c.wsd_decay_steps_fraction = 0.3;
  return c;
}

TEST(LearningRate, WarmsUpInEqualStepsWithoutAnIdleFirstOne) {
  for (const char* type : {"cosine", "wsd", "constant"}) {
    const TrainConfig c = Config(type, 20);
    for (int64_t step = 0; step < 4; ++step)
      EXPECT_DOUBLE_EQ(LearningRate(c, step), 2.0 * static_cast<double>(step + 1) / 4) << type;
    EXPECT_DOUBLE_EQ(LearningRate(c, 4), 2.0) << type;
  }
}

TEST(LearningRate, CosineFallsToTheFinalFractionAndStaysThere) {
  const TrainConfig c = Config("cosine", 20);
  for (int64_t step = 4; step <= 20; ++step) {
    const double t = static_cast<double>(step - 4) / 16;
    EXPECT_NEAR(LearningRate(c, step), 0.2 + 1.8 * 0.5 * (1 + std::cos(std::numbers::pi * t)), 1e-12);
  }
  EXPECT_DOUBLE_EQ(LearningRate(c, 20), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(c, 1000), 0.2);
}

TEST(LearningRate, WsdStaysUntilItsDecay) {
  const TrainConfig c = Config("wsd", 20);
  for (int64_t step = 4; step <= 14; ++step) EXPECT_DOUBLE_EQ(LearningRate(c, step), 2.0);
  EXPECT_NEAR(LearningRate(c, 15), 2.0 - 1.8 / 6, 1e-12);
  EXPECT_NEAR(LearningRate(c, 17), 2.0 - 1.8 / 2, 1e-12);
  EXPECT_NEAR(LearningRate(c, 20), 0.2, 1e-12);
}

TEST(LearningRate, OneStepRunsAtTheFullRate) {
  for (const char* type : {"cosine", "wsd", "constant"}) {
    TrainConfig c = Config(type, 1);
    EXPECT_DOUBLE_EQ(LearningRate(c, 0), 2.0) << type;
  }
}

}  // namespace
}  // namespace longspan
