#include "core/names.h"

#include <gtest/gtest.h>

#include <array>

namespace longspan {
namespace {

constexpr std::array<std::string_view, 4> kStrategies = {"all_gather", "ring", "ulysses", "usp"};

TEST(NearestName, FindsSlipsOfTheFingers) {
  EXPECT_EQ(NearestName("ring", kStrategies), "ring");
  EXPECT_EQ(NearestName("rign", kStrategies), "ring");  // a swap counts once
  EXPECT_EQ(NearestName("rin", kStrategies), "ring");   // a letter missing
  EXPECT_EQ(NearestName("ulyssess", kStrategies), "ulysses");
  EXPECT_EQ(NearestName("allgather", kStrategies), "all_gather");
  EXPECT_EQ(NearestName("all-gather", kStrategies), "all_gather");
  EXPECT_EQ(NearestName("up", kStrategies), "usp");
}

TEST(NearestName, IsEmptyWhenMoreThanAThirdDiffers) {
  constexpr std::array<std::string_view, 1> kOne = {"abcdef"};
  EXPECT_EQ(NearestName("abcdxx", kOne), "abcdef");
  EXPECT_EQ(NearestName("abcxxx", kOne), "");
  EXPECT_EQ(NearestName("ab", kOne), "");
  EXPECT_EQ(NearestName("", kOne), "");
  EXPECT_EQ(NearestName("abc", {}), "");
}

TEST(NearestName, TakesTheNearestAndTheFirstOfSeveral) {
  constexpr std::array<std::string_view, 3> kSteps = {"steps", "stepsize", "steep"};
  EXPECT_EQ(NearestName("stepsiz", kSteps), "stepsize");
  EXPECT_EQ(NearestName("step", kSteps), "steps");  // "steep" is as near
}

TEST(Suggestion, NamesTheNearestOrAll) {
  EXPECT_EQ(Suggestion("rng", kStrategies), "; did you mean 'ring'?");
  EXPECT_EQ(Suggestion("flash", kStrategies), "; one of all_gather, ring, ulysses, usp");
  EXPECT_EQ(Suggestion("flash", {}), "");
}

}  // namespace
}  // namespace longspan
