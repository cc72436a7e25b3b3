#include "parallel/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "core/check.h"
#include "data/packing.h"

namespace longspan {
namespace {

constexpr LayoutKind kKinds[] = {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped};

std::vector<int64_t> IndicesOf(const std::vector<Range>& spans) {
  std::vector<int64_t> indices;
  for (const Range& span : spans)
    for (int64_t i = span.begin; i < span.end; ++i) indices.push_back(i);
  return indices;
}

// Global indices in the order in which rank `rank` holds them, from the definition: chunk by chunk, token by
// token.
std::vector<int64_t> IndicesByDefinition(LayoutKind kind, int64_t t, int ring, int ulysses, int64_t stripe,
                                         int rank) {
  const int64_t ranks = ring * ulysses, padded = t * ranks;
  std::vector<int64_t> indices;
  if (kind == LayoutKind::kContiguous)
    for (int64_t i = 0; i < padded; ++i)
      if (i / t == rank) indices.push_back(i);
  if (kind == LayoutKind::kStriped)
    for (int64_t i = 0; i < padded; ++i)
      if (i / stripe % ranks == rank) indices.push_back(i);
  if (kind == LayoutKind::kZigzag) {
    const int64_t chunk = padded / (2 * ring), r = rank / ulysses;
    std::vector<int64_t> member;
    for (const int64_t n : {r, 2 * ring - 1 - r})
      for (int64_t i = 0; i < chunk; ++i) member.push_back(n * chunk + i);
    const int64_t begin = rank % ulysses * t;
    indices.assign(member.begin() + begin, member.begin() + begin + t);
  }
  return indices;
}

TEST(Layout, RanksHoldWhatTheDefinitionSaysAndEveryIndexOnce) {
  std::mt19937_64 random(1);
  for (int iteration = 0; iteration < 2000; ++iteration) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 700);
    const int ring = 1 + static_cast<int>(random() % 5), ulysses = 1 + static_cast<int>(random() % 4);
    const int ranks = ring * ulysses;
    const int64_t stripe = 1 + static_cast<int64_t>(random() % 80);
    const LayoutKind kind = kKinds[random() % 3];
    const Layout layout(kind, length, ring, ulysses, stripe);
    SCOPED_TRACE(fmt::format("{} T {} R {} U {} stripe {}", Name(kind), length, ring, ulysses, stripe));
    const int64_t multiple = kind == LayoutKind::kContiguous ? ranks
                             : kind == LayoutKind::kZigzag   ? 2 * ranks
                                                             : ranks * layout.stripe_length();
    const int64_t t = (length + multiple - 1) / multiple * multiple / ranks;
    ASSERT_EQ(layout.length(), length);
    ASSERT_EQ(layout.num_ranks(), ranks);
    ASSERT_EQ(layout.rows_per_rank(), t);
    std::vector<int64_t> all;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int64_t> indices = IndicesOf(layout.spans(rank));
      ASSERT_EQ(indices, IndicesByDefinition(kind, t, ring, ulysses, layout.stripe_length(), rank)) << rank;
      all.insert(all.end(), indices.begin(), indices.end());
      for (size_t n = 1; n < layout.spans(rank).size(); ++n)
        ASSERT_NE(layout.spans(rank)[n - 1].end, layout.spans(rank)[n].begin) << "not merged";
    }
    std::ranges::sort(all);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int64_t>(i));
  }
}

TEST(Layout, StripesAreHalvedUntilEveryRankHoldsARealRow) {
  EXPECT_EQ(Layout(LayoutKind::kStriped, 16384, 8, 1).stripe_length(), 64);
  EXPECT_EQ(Layout(LayoutKind::kStriped, 449, 8, 1).stripe_length(),
            64);  // the last rank's stripe begins at 448
  EXPECT_EQ(Layout(LayoutKind::kStriped, 448, 8, 1).stripe_length(), 32);
  EXPECT_EQ(Layout(LayoutKind::kStriped, 8, 2, 4).stripe_length(), 1);
  EXPECT_EQ(Layout(LayoutKind::kStriped, 5, 8, 1).stripe_length(), 1);  // fewer rows than ranks
  EXPECT_EQ(Layout(LayoutKind::kStriped, 100, 1, 1).stripe_length(), 64);
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();  // 2^63 − 1, 2^62 − 1, …
  EXPECT_EQ(Layout(LayoutKind::kStriped, 100, 8, 1, kHuge).stripe_length(), 7);
  EXPECT_EQ(Layout(LayoutKind::kStriped, 100, 1, 1, kHuge).stripe_length(), 100);
}

TEST(Layout, JoinedUlyssesPartsAreTheRingsZigzag) {
  for (const int ulysses : {1, 2, 3, 4}) {
    const Layout whole(LayoutKind::kZigzag, 96 * ulysses, 3, 1),
        parts(LayoutKind::kZigzag, 96 * ulysses, 3, ulysses);
    for (int r = 0; r < 3; ++r) {
      std::vector<std::vector<Range>> members;
      for (int u = 0; u < ulysses; ++u) members.push_back(parts.spans(r * ulysses + u));
      EXPECT_EQ(JoinSpans(members), whole.spans(r));
    }
  }
}

TEST(Layout, ZigzagWithoutARingIsContiguous) {
  const Layout zigzag(LayoutKind::kZigzag, 80, 1, 4), contiguous(LayoutKind::kContiguous, 80, 1, 4);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(zigzag.spans(rank), contiguous.spans(rank));
}

TEST(Layout, ZigzagBalancesACausalSequence) {
  constexpr int64_t kLength = 4096;
  const Mask mask = MakeMask({.kind = MaskKind::kCausal}, Documents{{0, kLength}});
  const auto pairs_of = [&](const Layout& layout, int rank) {
    int64_t pairs = 0;
    for (const Range& span : layout.spans(rank)) pairs += mask.CountPairs(span, {0, kLength});
    return pairs;
  };
  for (const int ranks : {1, 2, 4, 8}) {
    const Layout zigzag(LayoutKind::kZigzag, kLength, ranks, 1);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(pairs_of(zigzag, rank), mask.CountPairs() / ranks);
  }
  const Layout contiguous(LayoutKind::kContiguous, kLength, 8, 1);
  EXPECT_GT(pairs_of(contiguous, 7), 10 * pairs_of(contiguous, 0));
}

// Tokens 1 … 8 over two zigzag ranks: labels are shifted before the split.
TEST(Layout, TargetsTravelWithTheirTokens) {
  const std::vector<int32_t> targets = {2, 3, 4, 5, 6, 7, 8, kIgnoreTarget};
  const Layout zigzag(LayoutKind::kZigzag, 8, 2, 1);
  EXPECT_EQ(TakeShard(targets, zigzag.spans(0), kIgnoreTarget),
            (std::vector<int32_t>{2, 3, 8, kIgnoreTarget}));
  EXPECT_EQ(TakeShard(targets, zigzag.spans(1), kIgnoreTarget), (std::vector<int32_t>{4, 5, 6, 7}));
  for (const LayoutKind kind : kKinds) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      const Layout layout(kind, 8, ranks, 1);
      int64_t valid = 0;
      for (int rank = 0; rank < ranks; ++rank)
        for (const int32_t target : TakeShard(targets, layout.spans(rank), kIgnoreTarget))
          valid += target != kIgnoreTarget;
      EXPECT_EQ(valid, 7) << Name(kind) << " over " << ranks;
    }
  }
}

// Documents [0,4) and [4,8): positions restart, and travel with their tokens.
TEST(Layout, PositionsTravelWithTheirTokens) {
  const std::vector<int64_t> positions = {0, 1, 2, 3, 0, 1, 2, 3};
  const Layout zigzag(LayoutKind::kZigzag, 8, 2, 1);
  EXPECT_EQ(TakeShard(positions, zigzag.spans(0), int64_t{0}), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(TakeShard(positions, zigzag.spans(1), int64_t{0}), (std::vector<int64_t>{2, 3, 0, 1}));
}

TEST(Layout, NamesAreKnownAndOthersRefused) {
  for (const LayoutKind kind : kKinds) EXPECT_EQ(ParseLayoutKind(Name(kind)), kind);
  try {
    ParseLayoutKind("zigzg");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("zigzag"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace longspan
