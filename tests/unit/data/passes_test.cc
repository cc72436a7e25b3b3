#include "data/passes.h"

#include <gtest/gtest.h>

#include <optional>

#include "core/random.h"
#include "support/tiny.h"

namespace longspan {
namespace {

using testing::MakeBatch;

TEST(Passes, HoldTheWholeDocumentsThatFit) {
  EXPECT_EQ(PassesOf(Documents{{0, 4}, {4, 6}, {6, 10}, {10, 11}}, 6), (std::vector<Range>{{0, 6}, {6, 11}}));
  EXPECT_EQ(PassesOf(Documents{{0, 4}, {4, 6}, {6, 10}}, 5), (std::vector<Range>{{0, 4}, {4, 6}, {6, 10}}));
  EXPECT_EQ(PassesOf(Documents{{0, 4}, {4, 6}, {6, 10}}, 10), (std::vector<Range>{{0, 10}}));
  // Padding between two documents counts where both are in a pass, and only there.
  EXPECT_EQ(PassesOf(Documents{{2, 4}, {5, 8}, {9, 12}}, 6), (std::vector<Range>{{2, 8}, {9, 12}}));
  EXPECT_TRUE(PassesOf(Documents{}, 6).empty());
  EXPECT_THROW(PassesOf(Documents{{0, 4}, {4, 11}}, 6), std::logic_error);
}

TEST(Passes, TogetherAreTheSequence) {
  const CounterRandom random(3, "passes");
  uint64_t draw = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t length = 1 + static_cast<int64_t>(random.Below(12, draw++));
    std::vector<Range> documents;
    int64_t end = 0;
    while (end < 60) {
      const int64_t begin = end + static_cast<int64_t>(random.Below(3, draw++));
      end = begin + 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(length), draw++));
      documents.push_back({begin, end});
    }
    const int64_t padded = end + static_cast<int64_t>(random.Below(5, draw++));
    const Batch whole = MakeBatch(padded, documents, 37, draw);
    Batch joined;
    joined.tokens.assign(whole.tokens.size(), 0);
    joined.targets.assign(whole.targets.size(), kIgnoreTarget);
    std::optional<Range> previous;
    for (const Range& rows : PassesOf(whole.documents, length)) {
      const Batch pass = TakePass(whole, rows, length);
      ASSERT_EQ(static_cast<int64_t>(pass.tokens.size()), length);
      ASSERT_EQ(static_cast<int64_t>(pass.targets.size()), length);
      ASSERT_FALSE(pass.documents.empty());
      EXPECT_EQ(pass.documents.front().begin, 0);
      EXPECT_EQ(pass.documents.back().end, rows.size());
      // The pass before had no room for its first document.
      if (previous) {
        EXPECT_GT(rows.begin + pass.documents[0].end - previous->begin, length);
      }
      previous = rows;
      for (const Range& document : pass.documents)
        joined.documents.push_back({rows.begin + document.begin, rows.begin + document.end});
      for (int64_t i = 0; i < length; ++i) {
        const size_t row = static_cast<size_t>(i);
        if (i < rows.size()) {
          joined.tokens[static_cast<size_t>(rows.begin + i)] = pass.tokens[row];
          joined.targets[static_cast<size_t>(rows.begin + i)] = pass.targets[row];
        } else {
          EXPECT_EQ(pass.tokens[row], 0);
          EXPECT_EQ(pass.targets[row], kIgnoreTarget);
        }
      }
      joined.num_tokens += pass.num_tokens;
      joined.num_targets += pass.num_targets;
    }
    EXPECT_EQ(joined.tokens, whole.tokens);
    EXPECT_EQ(joined.targets, whole.targets);
    EXPECT_EQ(joined.documents, whole.documents);
    EXPECT_EQ(joined.num_tokens, whole.num_tokens);
    EXPECT_EQ(joined.num_targets, whole.num_targets);
  }
}

TEST(Passes, BranchesStayWithTheirDocument) {
  Batch whole = MakeBatch(20, {{0, 6}, {6, 16}}, 37);
  whole.branches = {{9, 12}, {12, 16}};
  EXPECT_TRUE(TakePass(whole, {0, 6}, 12).branches.empty());
  EXPECT_EQ(TakePass(whole, {6, 16}, 12).branches, (std::vector<Range>{{3, 6}, {6, 10}}));
}

}  // namespace
}  // namespace longspan
