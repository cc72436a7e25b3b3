#include "mask/mask.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "core/check.h"
#include "reference/mask.h"
#include "unit/mask/random_masks.h"

namespace longspan {
namespace {

using testing::RandomDocuments;
using testing::RandomSpec;

std::vector<int64_t> KeysPerRow(const Mask& mask, int64_t length) {
  std::vector<int64_t> counts;
  for (int64_t row = 0; row < length; ++row) {
    const RowIntervals seen = mask.Row(row);
    counts.push_back(seen.intervals[0].size() + seen.intervals[1].size());
  }
  return counts;
}

TEST(Mask, EveryRowSeesWhatItsFormulaSays) {
  std::mt19937_64 random(1);
  for (int iteration = 0; iteration < 3000; ++iteration) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 40);
    const MaskSpec spec = RandomSpec(random);
    const Documents documents = RandomDocuments(random, length);
    const Mask mask = MakeMask(spec, documents);
    for (int64_t row = -1; row <= length; ++row) {
      const RowIntervals seen = mask.Row(row);
      for (int64_t key = -1; key <= length; ++key)
        ASSERT_EQ(seen.Sees(key), reference::Sees(spec, documents, row, key))
            << testing::Describe(spec, documents) << " row " << row << " key " << key;
    }
  }
}

TEST(Mask, RunsInAreThoseThatTouchTheRows) {
  std::mt19937_64 random(2);
  for (int iteration = 0; iteration < 2000; ++iteration) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 40);
    const Mask mask = MakeMask(RandomSpec(random), RandomDocuments(random, length));
    const Range rows = testing::RandomRange(random, length);
    const auto got = mask.RunsIn(rows);
    std::vector<Range> want;
    for (const RowRun& run : mask.runs())
      if (!rows.empty() && run.rows.begin < rows.end && rows.begin < run.rows.end) want.push_back(run.rows);
    ASSERT_EQ(got.size(), want.size());
    for (size_t n = 0; n < got.size(); ++n) ASSERT_EQ(got[n].rows, want[n]);
  }
}

TEST(Mask, WindowCountsTheRowItself) {
  const Documents one = {{0, 8}};
  EXPECT_EQ(KeysPerRow(MakeMask({.kind = MaskKind::kSlidingWindow, .window = 4}, one), 8),
            (std::vector<int64_t>{1, 2, 3, 4, 4, 4, 4, 4}));
  EXPECT_EQ(KeysPerRow(MakeMask({.kind = MaskKind::kSlidingWindow, .window = 1}, one), 8),
            (std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 1}));
  for (const int64_t window : {int64_t{8}, int64_t{9}, INT64_MAX})
    EXPECT_EQ(KeysPerRow(MakeMask({.kind = MaskKind::kSlidingWindow, .window = window}, one), 8),
              (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Mask, SinkTokensStayVisibleBesideTheWindow) {
  const Documents one = {{0, 10}};
  const MaskSpec spec = {.kind = MaskKind::kSinkWindow, .window = 3, .sinks = 2};
  EXPECT_EQ(KeysPerRow(MakeMask(spec, one), 10), (std::vector<int64_t>{1, 2, 3, 4, 5, 5, 5, 5, 5, 5}));
}

TEST(Mask, AllowedPairsAt4096Tokens) {
  EXPECT_EQ(MakeMask({.kind = MaskKind::kCausal}, Documents{{0, 4096}}).CountPairs(), 8390656);
  const Documents four = {{0, 1024}, {1024, 2048}, {2048, 3072}, {3072, 4096}};
  EXPECT_EQ(MakeMask({.kind = MaskKind::kCausal}, four).CountPairs(), 2099200);
  EXPECT_EQ(MakeMask({.kind = MaskKind::kSlidingWindow, .window = 1024}, Documents{{0, 4096}}).CountPairs(),
            3670528);
}

TEST(Mask, ParametersOutOfRangeAreRefused) {
  const Documents one = {{0, 8}};
  const MaskSpec bad[] = {{.kind = MaskKind::kSlidingWindow, .window = 0},
                          {.kind = MaskKind::kSinkWindow, .window = 0, .sinks = 1},
                          {.kind = MaskKind::kSinkWindow, .window = 1, .sinks = -1},
                          {.kind = MaskKind::kChunked, .chunk = 0},
                          {.kind = MaskKind::kPrefix, .prefix = -1}};
  for (const MaskSpec& spec : bad) {
    try {
      MakeMask(spec, one);
      ADD_FAILURE() << "accepted " << testing::Describe(spec, one);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
    }
  }
  EXPECT_NO_THROW(MakeMask({.kind = MaskKind::kPrefix, .prefix = 0}, one));
  EXPECT_NO_THROW(MakeMask({.kind = MaskKind::kSinkWindow, .window = 1, .sinks = 0}, one));
}

TEST(Mask, TableNamesEveryKindOnce) {
  std::vector<std::string_view> names;
  for (const MaskRow& row : MaskTable()) names.push_back(row.name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"full", "causal", "sliding_window", "chunked", "prefix",
                                                  "sink_window"}));
}

TEST(Mask, MalformedRunsAreABug) {
  const RowRun::Interval row_itself = {{0, true}, {1, true}}, nothing = {{0, true}, {0, true}};
  EXPECT_NO_THROW(Mask({RowRun{{0, 4}, 1, {row_itself}}, RowRun{{4, 5}, 1, {row_itself}}}));
  EXPECT_THROW(Mask({RowRun{{0, 4}, 1, {nothing}}}), std::logic_error);
  EXPECT_THROW(Mask({RowRun{{0, 4}, 2, {row_itself, row_itself}}}), std::logic_error);
  EXPECT_THROW(Mask({RowRun{{4, 4}, 1, {row_itself}}}), std::logic_error);
  EXPECT_THROW(Mask({RowRun{{0, 4}, 0, {row_itself}}}), std::logic_error);
  EXPECT_THROW(Mask({RowRun{{0, 4}, 3, {row_itself}}}), std::logic_error);
  EXPECT_THROW(Mask({RowRun{{0, 5}, 1, {row_itself}}, RowRun{{4, 6}, 1, {row_itself}}}), std::logic_error);
  // Empty in its last row only.
  EXPECT_THROW(Mask({RowRun{{0, 4}, 1, {{{{0, true}, {3, false}}}}}}), std::logic_error);
}

TEST(NormalizeDocuments, DropsEmptyOnes) {
  const Range documents[] = {{0, 0}, {0, 3}, {3, 3}, {3, 5}, {7, 9}, {9, 9}};
  EXPECT_EQ(NormalizeDocuments(documents, 9), (Documents{{0, 3}, {3, 5}, {7, 9}}));
  EXPECT_EQ(NormalizeDocuments({}, 9), Documents{});
}

TEST(NormalizeDocuments, RefusesWhatIsNotSortedDisjointAndInside) {
  const std::vector<Range> bad[] = {{{0, 3}, {2, 5}}, {{3, 5}, {0, 3}}, {{0, 10}}, {{-1, 3}}, {{3, 2}}};
  for (const std::vector<Range>& documents : bad) EXPECT_THROW(NormalizeDocuments(documents, 9), Error);
}

// Padding inside and at the end, ids [1,1,1,0,2,2,0,0]: rows 3, 6 and 7 see nothing and nobody sees them.
TEST(Mask, PaddingSeesNothingAndIsSeenByNobody) {
  const Documents documents = {{0, 3}, {4, 6}};
  for (const MaskRow& row : MaskTable()) {
    const Mask mask =
        MakeMask({.kind = row.kind, .window = 2, .chunk = 2, .prefix = 2, .sinks = 1}, documents);
    for (int64_t pad : {3, 6, 7}) {
      EXPECT_EQ(mask.Row(pad).intervals[0], Range{});
      EXPECT_EQ(mask.CountPairs({0, 8}, {pad, pad + 1}), 0);
      EXPECT_EQ(mask.CountPairs({pad, pad + 1}, {0, 8}), 0);
    }
    for (int64_t real : {0, 1, 2, 4, 5}) EXPECT_TRUE(mask.Row(real).Sees(real));
  }
}

TEST(Mask, EmptyDocumentsChangeNothing) {
  const Range with_empty[] = {{0, 0}, {0, 4}, {4, 4}, {4, 4}, {5, 9}, {10, 10}};
  const Documents documents = NormalizeDocuments(with_empty, 10);
  for (const MaskRow& row : MaskTable()) {
    const MaskSpec spec = {.kind = row.kind, .window = 2, .chunk = 2, .prefix = 2, .sinks = 1};
    const Mask mask = MakeMask(spec, documents), without = MakeMask(spec, Documents{{0, 4}, {5, 9}});
    ASSERT_EQ(mask.runs().size(), without.runs().size());
    for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(mask.Row(i).intervals, without.Row(i).intervals);
  }
}

// A mask has no row of its own for any token: at 14M tokens it is made and counted in far less than a look at
// each.
TEST(Mask, FourteenMillionTokens) {
  constexpr int64_t kLength = 14'000'000;
  const auto start = std::chrono::steady_clock::now();
  const Mask causal = MakeMask({.kind = MaskKind::kCausal}, Documents{{0, kLength}});
  EXPECT_EQ(causal.runs().size(), 1u);
  EXPECT_EQ(causal.CountPairs(), kLength * (kLength + 1) / 2);
  const MaskSpec sink_window = {.kind = MaskKind::kSinkWindow, .window = 4096, .sinks = 4};
  const Mask mask = MakeMask(sink_window, Documents{{0, kLength}});
  EXPECT_EQ(mask.runs().size(), 2u);
  constexpr int64_t kSettled = kLength - 4100;  // rows that see 4 + 4096 keys; those before are causal
  EXPECT_EQ(mask.CountPairs(), int64_t{4100} * 4101 / 2 + kSettled * 4100);
  EXPECT_EQ(mask.CountPairs({0, kLength}, {0, kLength}), mask.CountPairs());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 0.01);
}

}  // namespace
}  // namespace longspan
