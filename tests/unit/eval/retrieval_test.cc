#include "eval/retrieval.h"

#include <gtest/gtest.h>

namespace longspan {
namespace {

Case MakeCase(int64_t length, double depth, std::vector<std::vector<int32_t>> answers) {
  return {.length = length, .depth = depth, .prompt = {1, 2, 3}, .answers = std::move(answers)};
}

TEST(Summarize, CountsByLengthAndDepth) {
  const std::vector<Case> cases = {MakeCase(100, 0, {{5, 6}, {7}, {8}, {9}}), MakeCase(100, 1, {{5, 6}, {7}}),
                                   MakeCase(100, 1, {{5}, {6}}), MakeCase(200, 0, {{5, 6, 7}})};
  const std::vector<std::vector<AnswerScore>> scores = {
      {{-3, 2}, {-4, 1}, {-5, 0}, {-3.5, 1}},  // the likeliest, and greedy
      {{-3, 1}, {-2, 1}},  // neither: a wrong one is likelier, one token is not the choice
      {{-2, 1}, {-2, 0}},  // greedy; as likely as a wrong one is not likelier
      {{-9, 2}}};          // nothing to compare with
  const RetrievalReport report = Summarize("needle", cases, scores, /*has_depth=*/true);
  ASSERT_EQ(report.cells.size(), 3u);
  const RetrievalCell &first = report.cells[0], &second = report.cells[1], &third = report.cells[2];
  EXPECT_EQ(first.depth, 0.0);
  EXPECT_EQ(first.cases, 1);
  EXPECT_EQ(first.likeliest, 1);
  EXPECT_EQ(first.greedy, 1);
  EXPECT_EQ(first.chance, 0.25);
  EXPECT_EQ(second.depth, 1.0);
  EXPECT_EQ(second.cases, 2);
  EXPECT_EQ(second.likeliest, 0);
  EXPECT_EQ(second.greedy, 1);
  EXPECT_EQ(second.chance, 1);
  EXPECT_EQ(second.log_probability, -5);
  EXPECT_EQ(second.answer_tokens, 3);
  EXPECT_EQ(third.length, 200);
  EXPECT_EQ(third.likeliest, 1);
  EXPECT_EQ(third.greedy, 0);

  EXPECT_EQ(report.OfLength(100).cases, 3);
  EXPECT_EQ(report.OfLength(100).greedy, 2);
  EXPECT_FALSE(report.OfLength(100).depth.has_value());
  EXPECT_EQ(report.Whole().cases, 4);
  EXPECT_EQ(report.Whole().log_probability, -17);
  EXPECT_EQ(report.tokens, (2 + 5) + (2 + 3) + (2 + 2) + (2 + 3));

  const RetrievalReport spread = Summarize("variable_tracking", cases, scores, /*has_depth=*/false);
  ASSERT_EQ(spread.cells.size(), 2u);
  EXPECT_EQ(spread.cells[0].cases, 3);
  EXPECT_FALSE(spread.cells[0].depth.has_value());
}

}  // namespace
}  // namespace longspan
