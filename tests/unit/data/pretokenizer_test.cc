#include "data/pretokenizer.h"

#include <gtest/gtest.h>

namespace longspan {
namespace {

using Pieces = std::vector<std::string>;
using Split = Pretokenizer::Split;
using Metaspace = Pretokenizer::Metaspace;

Pieces Cut(const Pretokenizer& pretokenizer, std::string_view text, bool is_first = true) {
  Regex::Scratch scratch;
  Pieces pieces;
  pretokenizer.Cut(text, is_first, scratch, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

template <class Step>
Pretokenizer Of(Step step) {
  Pretokenizer pretokenizer;
  pretokenizer.Add(std::move(step));
  return pretokenizer;
}

Split Dashes(Split::Behavior behavior, bool invert = false) {
  return {Regex("-", RegexDialect::kOniguruma, "test"), behavior, invert};
}

// The example of Hugging Face's documentation, for each behaviour.
TEST(Pretokenizer, SplitBehaviors) {
  using enum Split::Behavior;
  const std::string text = "the-final--countdown";
  EXPECT_EQ(Cut(Of(Dashes(kRemoved)), text), (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(Cut(Of(Dashes(kIsolated)), text), (Pieces{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(Cut(Of(Dashes(kMergedWithPrevious)), text), (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(Cut(Of(Dashes(kMergedWithNext)), text), (Pieces{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(Cut(Of(Dashes(kContiguous)), text), (Pieces{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(Cut(Of(Dashes(kRemoved, true)), text), (Pieces{"-", "-", "-"}));
  EXPECT_EQ(Cut(Of(Dashes(kMergedWithNext, true)), text), (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(Cut(Of(Dashes(kMergedWithPrevious)), "-a-"), (Pieces{"-", "a-"}));
  EXPECT_EQ(Cut(Of(Split{"--", kIsolated, false}), text), (Pieces{"the-final", "--", "countdown"}));
  EXPECT_EQ(Cut(Of(Dashes(kIsolated)), ""), Pieces{});
}

TEST(Pretokenizer, MetaspacePrefixes) {
  using enum Metaspace::Prepend;
  EXPECT_EQ(Cut(Of(Metaspace{"_", kAlways, true}), "a  b"), (Pieces{"_a", "_", "_b"}));
  EXPECT_EQ(Cut(Of(Metaspace{"_", kAlways, true}), " a"), (Pieces{"_a"}));
  EXPECT_EQ(Cut(Of(Metaspace{"_", kNever, true}), "a b"), (Pieces{"a", "_b"}));
  EXPECT_EQ(Cut(Of(Metaspace{"_", kAlways, false}), "a b"), (Pieces{"_a_b"}));
  EXPECT_EQ(Cut(Of(Metaspace{"_", kFirst, true}), "a b"), (Pieces{"_a", "_b"}));
  EXPECT_EQ(Cut(Of(Metaspace{"_", kFirst, true}), "a b", false), (Pieces{"a", "_b"}));

  // Only the piece that begins the text is first.
  Pretokenizer pretokenizer = Of(Dashes(Split::Behavior::kRemoved));
  pretokenizer.Add(Metaspace{"_", kFirst, true});
  EXPECT_EQ(Cut(pretokenizer, "a-b"), (Pieces{"_a", "b"}));
  EXPECT_EQ(Cut(pretokenizer, "-a-b"), (Pieces{"a", "b"}));
}

TEST(Pretokenizer, StepsFollowEachOther) {
  Pretokenizer pretokenizer = Of(Dashes(Split::Behavior::kIsolated));
  pretokenizer.Add(Pretokenizer::PrefixSpace{});
  pretokenizer.Add(
      Split{Regex(" ?[a-z]", RegexDialect::kOniguruma, "test"), Split::Behavior::kIsolated, false});
  EXPECT_EQ(Cut(pretokenizer, "ab-c d"), (Pieces{" a", "b", " -", " c", " d"}));
  EXPECT_EQ(Cut(Pretokenizer(), "ab c"), (Pieces{"ab c"}));
}

}  // namespace
}  // namespace longspan
