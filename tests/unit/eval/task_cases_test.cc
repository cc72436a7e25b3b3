#include "eval/task_cases.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/check.h"
#include "core/target.h"
#include "mask/mask.h"
#include "support/expect_error.h"

namespace longspan {
namespace {

using testing::ExpectError;

// Bytes, but that ": " and a digit behind it are one token (256 + the digit), as byte pairs may join a
// prompt's end and an answer's beginning; and a BOS, 300.
class JoiningTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 301; }
  void AppendToken(int32_t id, bool, std::string* bytes) const override {
    if (id < 256)
      *bytes += static_cast<char>(id);
    else if (id < 300)
      *bytes += fmt::format(": {}", id - 256);
  }
  std::span<const int32_t> document_prefix() const override { return {&kBos, 1}; }

 private:
  static constexpr int32_t kBos = 300;
  std::vector<int32_t> DoEncode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i).starts_with(": ") && i + 2 < text.size() && '0' <= text[i + 2] &&
          text[i + 2] <= '9') {
        ids.push_back(256 + text[i + 2] - '0');
        i += 2;
      } else {
        ids.push_back(static_cast<unsigned char>(text[i]));
      }
    }
    return ids;
  }
};

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Tokenize, AnswersAreWhatTheyAreInTheText) {
  const JoiningTokenizer tokenizer;
  const Case one = Tokenize({"ab:", {" 12", " 7", " x"}}, tokenizer);
  // ": 1" is one token, so the prompt ends before its colon.
  EXPECT_EQ(one.prompt, (std::vector<int32_t>{300, 'a', 'b'}));
  ASSERT_EQ(one.answers.size(), 3u);
  EXPECT_EQ(one.answers[0], (std::vector<int32_t>{257, '2'}));
  EXPECT_EQ(one.answers[1], (std::vector<int32_t>{263}));
  EXPECT_EQ(one.answers[2], (std::vector<int32_t>{':', ' ', 'x'}));
  EXPECT_EQ(one.num_rows(), 2 + 2 + 1 + 3);
  EXPECT_EQ(Tokenize({"ab", {"c"}}, tokenizer).prompt, (std::vector<int32_t>{300, 'a', 'b'}));
  ExpectError({"cannot be scored"}, [&] { Tokenize({"ab", {""}}, tokenizer); });
}

TEST(MakeCases, AreAsLongAsFits) {
  const JoiningTokenizer tokenizer;
  for (const auto make : {MakeNeedle, MakeVariableTracking}) {
    const std::unique_ptr<Task> task = make("");
    const CaseSpec spec = {
        .lengths = {900, 2000, 7001}, .depths = {0, 0.5}, .samples = 2, .choices = 3, .seed = 4};
    const std::vector<Case> cases = MakeCases(*task, tokenizer, spec);
    const size_t per_length = task->has_depth() ? 4 : 2;
    ASSERT_EQ(cases.size(), 3 * per_length);
    for (size_t i = 0; i < cases.size(); ++i) {
      const Case& one = cases[i];
      EXPECT_EQ(one.length, spec.lengths[i / per_length]);
      EXPECT_EQ(one.answers.size(), 3u);
      const auto tokens = static_cast<int64_t>(one.prompt.size() + one.answers[0].size());
      EXPECT_LE(tokens, one.length);
      EXPECT_GT(tokens + 90, one.length);  // a sentence of noise takes 90 bytes
    }
    EXPECT_NE(cases[0].prompt, cases[1].prompt);
    // Each case is the same whichever others there are.
    const CaseSpec alone = {.lengths = {2000}, .depths = {0}, .samples = 1, .choices = 3, .seed = 4};
    EXPECT_EQ(MakeCases(*task, tokenizer, alone)[0].prompt, cases[per_length].prompt);
  }
  ExpectError({"a case of 100 tokens has no room", "task_lengths"}, [&] {
    MakeCases(*MakeNeedle(""), tokenizer, {.lengths = {100}, .depths = {0}, .samples = 1, .choices = 2});
  });
}

TEST(PackCases, EveryAnswerFollowsItsPrompt) {
  std::vector<Case> cases;
  for (int32_t c = 0; c < 5; ++c) {
    Case& one = cases.emplace_back();
    for (int32_t i = 0; i < 3 + c; ++i) one.prompt.push_back(100 * c + i);
    for (int32_t a = 0; a < 1 + c % 3; ++a) {
      std::vector<int32_t>& answer = one.answers.emplace_back();
      for (int32_t i = 0; i <= a; ++i) answer.push_back(100 * c + 50 + 10 * a + i);
    }
  }
  const CaseBatches packed = PackCases(cases, 17);
  EXPECT_GT(packed.batches.size(), 1u);
  std::vector<std::pair<size_t, size_t>> seen;
  for (size_t b = 0; b < packed.batches.size(); ++b) {
    const Batch& batch = packed.batches[b];
    ASSERT_EQ(batch.tokens.size(), 17u);
    const std::vector<Segment> segments = SegmentsOf(batch.documents, batch.branches);
    int64_t targets = 0;
    for (const CaseBatches::Answer& answer : packed.answers[b]) {
      seen.emplace_back(answer.at_case, answer.answer);
      const Case& one = cases[answer.at_case];
      const auto branch = std::ranges::find(segments, answer.rows, &Segment::rows);
      ASSERT_NE(branch, segments.end());
      // The stem and the branch are the prompt and the answer, and the targets are the answer.
      std::vector<int32_t> rows, asked;
      for (const Range& part : {branch->stem, branch->rows})
        for (int64_t i = part.begin; i < part.end; ++i) rows.push_back(batch.tokens[static_cast<size_t>(i)]);
      for (int64_t i = branch->rows.begin; i < branch->rows.end; ++i)
        asked.push_back(batch.targets[static_cast<size_t>(i)]);
      std::vector<int32_t> text = Joined(one.prompt, one.answers[answer.answer]);
      EXPECT_EQ(asked, one.answers[answer.answer]);
      text.pop_back();
      EXPECT_EQ(rows, text);
      targets += answer.rows.size();
    }
    EXPECT_EQ(batch.num_targets, targets);
    EXPECT_EQ(17 - std::ranges::count(batch.targets, kIgnoreTarget), targets);
    EXPECT_EQ(batch.num_tokens, batch.documents.back().end);
  }
  EXPECT_EQ(seen.size(), 1u + 2 + 3 + 1 + 2);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
}

}  // namespace
}  // namespace longspan
