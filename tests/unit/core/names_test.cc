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

TEST(Shortened, CutsBetweenCharacters) {
  EXPECT_EQ(Shortened("abc", 3), "abc");
  EXPECT_EQ(Shortened("abcd", 3), "abc…");
  EXPECT_EQ(Shortened("aéb", 2), "a…");  // é is two bytes
  EXPECT_EQ(Shortened("aéb", 3), "aé…");
}

TEST(OneLine, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(OneLine("a é\n\x1b[2J\x7f b"), "a é\\x0a\\x1b[2J\\x7f b");
  EXPECT_EQ(OneLine(std::string_view("\0", 1)), "\\x00");
}

TEST(OneLine, KeepsTheEndsOfALongText) {
  const std::string fits(4096, 'x');
  EXPECT_EQ(OneLine(fits), fits);
  const std::string line = OneLine("begin " + std::string(100'000, 'x') + " end");
  EXPECT_LE(line.size(), 4096u);
  EXPECT_TRUE(line.starts_with("begin xxx")) << line;
  EXPECT_TRUE(line.ends_with("xxx end")) << line;
  EXPECT_NE(line.find("x…x"), std::string::npos) << line;
  std::string wide;
  for (int i = 0; i < 3000; ++i) wide += "é";
  for (const std::string& text : {wide, "x" + wide})
    EXPECT_EQ(OneLine(text).find("…\xa9"), std::string::npos);
}

}  // namespace
}  // namespace longspan
