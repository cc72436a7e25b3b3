#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "mask/mask.h"
#include "reference/mask.h"
#include "unit/mask/random_masks.h"

namespace longspan {
namespace {

using testing::RandomDocuments;
using testing::RandomRange;
using testing::RandomSpec;

// Compares a tile with a look at each of its pairs.
template <class Sees>
void ExpectTile(const Mask& mask, Range rows, Range keys, const Sees& sees, const std::string& what) {
  int64_t pairs = 0, area = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t key = keys.begin; key < keys.end; ++key, ++area) pairs += sees(row, key);
  const TileClass want = pairs == 0      ? TileClass::kEmpty
                         : pairs == area ? TileClass::kFull
                                         : TileClass::kPartial;
  const std::string tile =
      fmt::format("; rows [{}, {}) keys [{}, {})", rows.begin, rows.end, keys.begin, keys.end);
  ASSERT_EQ(mask.CountPairs(rows, keys), pairs) << what << tile;
  ASSERT_EQ(mask.Classify(rows, keys), want) << what << tile;
}

TEST(Tiles, EqualALookAtEachPair) {
  std::mt19937_64 random(3);
  for (int iteration = 0; iteration < 6000; ++iteration) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 40);
    const MaskSpec spec = RandomSpec(random);
    const Documents documents = RandomDocuments(random, length);
    const Mask mask = MakeMask(spec, documents);
    const std::string what = testing::Describe(spec, documents);
    const auto sees = [&](int64_t row, int64_t key) { return reference::Sees(spec, documents, row, key); };
    for (int tile = 0; tile < 6; ++tile)
      ASSERT_NO_FATAL_FAILURE(
          ExpectTile(mask, RandomRange(random, length), RandomRange(random, length), sees, what));
    // Small tiles, which are full or empty more often.
    for (int tile = 0; tile < 6; ++tile) {
      const int64_t row = static_cast<int64_t>(random() % 40) % length,
                    key = static_cast<int64_t>(random() % 40) % length;
      const Range rows = {row, row + 1 + static_cast<int64_t>(random() % 4)};
      const Range keys = {key, key + 1 + static_cast<int64_t>(random() % 4)};
      ASSERT_NO_FATAL_FAILURE(ExpectTile(mask, rows, keys, sees, what));
    }
  }
}

// What the rows of one rank see of the keys of another: lists of ranges, neither sorted nor adjacent.
TEST(Tiles, CountsPairsOfLists) {
  std::mt19937_64 random(11);
  const auto random_list = [&](int64_t length) {
    std::vector<Range> list;
    for (int64_t begin = static_cast<int64_t>(random() % 5) - 2; begin < length + 3;) {
      const int64_t end = begin + static_cast<int64_t>(random() % 6);  // some are empty
      list.push_back({begin, end});
      begin = end + static_cast<int64_t>(random() % 7);
    }
    std::shuffle(list.begin(), list.end(), random);
    return list;
  };
  for (int iteration = 0; iteration < 3000; ++iteration) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 40);
    const MaskSpec spec = RandomSpec(random);
    const Documents documents = RandomDocuments(random, length);
    const Mask mask = MakeMask(spec, documents);
    const std::vector<Range> rows = random_list(length), keys = random_list(length);
    int64_t pairs = 0;
    for (const Range& r : rows)
      for (const Range& k : keys)
        for (int64_t row = r.begin; row < r.end; ++row)
          for (int64_t key = k.begin; key < k.end; ++key) pairs += reference::Sees(spec, documents, row, key);
    ASSERT_EQ(mask.CountPairs(rows, keys), pairs) << testing::Describe(spec, documents);
  }
  EXPECT_EQ(MakeMask({}, Documents{{0, 4}}).CountPairs(std::vector<Range>{}, std::vector<Range>{{0, 4}}), 0);
}

TEST(Tiles, EveryTileOfASmallMaskOfEachKind) {
  constexpr int64_t kLength = 11;
  for (const MaskRow& row : MaskTable()) {
    const MaskSpec spec = {.kind = row.kind, .window = 3, .chunk = 3, .prefix = 2, .sinks = 1};
    const Documents documents = {{0, 7}, {8, 10}};
    const Mask mask = MakeMask(spec, documents);
    const auto sees = [&](int64_t i, int64_t j) { return reference::Sees(spec, documents, i, j); };
    for (int64_t r0 = 0; r0 < kLength; ++r0)
      for (int64_t r1 = r0; r1 <= kLength; ++r1)
        for (int64_t k0 = 0; k0 < kLength; ++k0)
          for (int64_t k1 = k0; k1 <= kLength; ++k1)
            ASSERT_NO_FATAL_FAILURE(ExpectTile(mask, {r0, r1}, {k0, k1}, sees, std::string(row.name)));
  }
}

// Runs that no named mask has: ends that follow the row or not in every combination, two intervals that touch
// in all rows, in some, or in none. Full may then hold only for both together.
TEST(Tiles, AnyTwoIntervals) {
  std::mt19937_64 random(4);
  int full_by_both = 0;
  for (int iteration = 0; iteration < 20000; ++iteration) {
    const int64_t begin = static_cast<int64_t>(random() % 8);
    RowRun run{{begin, begin + 1 + static_cast<int64_t>(random() % 8)}, 2, {}};
    // Each end is drawn so that it lies behind the one before in the first row and in the last.
    int64_t low_first = -6, low_last = -6;
    Bound ends[4];
    for (int n = 0; n < 4; ++n) {
      const bool follows = random() % 2;
      const int64_t first = std::max(low_first, follows ? low_last - (run.rows.size() - 1) : low_last) +
                            (n % 2 == 1 ? 1 : 0) + static_cast<int64_t>(random() % 3);
      ends[n] = follows ? Bound{first - run.rows.begin, true} : Bound{first, false};
      low_first = ends[n].At(run.rows.begin);
      low_last = ends[n].At(run.rows.end - 1);
    }
    run.intervals = {RowRun::Interval{ends[0], ends[1]}, RowRun::Interval{ends[2], ends[3]}};
    const Mask mask({run});
    const auto sees = [&](int64_t row, int64_t key) { return mask.Row(row).Sees(key); };
    for (int tile = 0; tile < 8; ++tile) {
      const int64_t row = run.rows.begin - 1 + static_cast<int64_t>(random() % 9);
      const int64_t key = -7 + static_cast<int64_t>(random() % 24);
      const Range rows = {row, row + 1 + static_cast<int64_t>(random() % 3)};
      const Range keys = {key, key + 1 + static_cast<int64_t>(random() % 5)};
      ASSERT_NO_FATAL_FAILURE(ExpectTile(mask, rows, keys, sees, "two intervals"));
      if (mask.Classify(rows, keys) == TileClass::kFull) {
        const Range a = run.intervals[0].At(rows.begin), b = run.intervals[1].At(rows.begin);
        full_by_both += a.begin <= keys.begin && keys.end > a.end && keys.begin < a.end && b.end >= keys.end;
      }
    }
  }
  EXPECT_GT(full_by_both, 100);  // the case is met
}

TEST(Tiles, EmptyRangesAreEmpty) {
  const Mask mask = MakeMask({.kind = MaskKind::kFull}, Documents{{0, 8}});
  EXPECT_EQ(mask.Classify({3, 3}, {0, 8}), TileClass::kEmpty);
  EXPECT_EQ(mask.Classify({0, 8}, {3, 3}), TileClass::kEmpty);
  EXPECT_EQ(mask.Classify({5, 3}, {0, 8}), TileClass::kEmpty);
  EXPECT_EQ(mask.Classify({0, 8}, {5, 3}), TileClass::kEmpty);
  EXPECT_EQ(mask.CountPairs({0, 8}, {5, 3}), 0);
  EXPECT_EQ(mask.CountPairs({5, 3}, {0, 8}), 0);
  EXPECT_EQ(Mask().Classify({0, 8}, {0, 8}), TileClass::kEmpty);
  EXPECT_EQ(Mask().CountPairs(), 0);
}

TEST(Tiles, PartsAddUpToTheWhole) {
  std::mt19937_64 random(5);
  for (int iteration = 0; iteration < 500; ++iteration) {
    const int64_t length = 1000 + static_cast<int64_t>(random() % 9000);
    const Mask mask = MakeMask(RandomSpec(random), RandomDocuments(random, length));
    const auto middle = [&] { return static_cast<int64_t>(random() % static_cast<uint64_t>(length)); };
    const int64_t r = middle(), k = middle();
    const int64_t sum = mask.CountPairs({0, r}, {0, k}) + mask.CountPairs({0, r}, {k, length}) +
                        mask.CountPairs({r, length}, {0, k}) + mask.CountPairs({r, length}, {k, length});
    ASSERT_EQ(sum, mask.CountPairs());
  }
}

// Global indices past 2^40: the same classes and counts as near 0.
TEST(Tiles, FarOutIndices) {
  constexpr int64_t kFar = int64_t{1} << 40;
  std::mt19937_64 random(6);
  for (int iteration = 0; iteration < 500; ++iteration) {
    const MaskSpec spec = RandomSpec(random);
    const Documents documents = RandomDocuments(random, 40);
    Documents far = documents;
    for (Range& document : far) document = {document.begin + kFar, document.end + kFar};
    const Mask mask = MakeMask(spec, documents), far_mask = MakeMask(spec, far);
    const Range rows = RandomRange(random, 40), keys = RandomRange(random, 40);
    const Range far_rows = {rows.begin + kFar, rows.end + kFar},
                far_keys = {keys.begin + kFar, keys.end + kFar};
    ASSERT_EQ(far_mask.Classify(far_rows, far_keys), mask.Classify(rows, keys));
    ASSERT_EQ(far_mask.CountPairs(far_rows, far_keys), mask.CountPairs(rows, keys));
    ASSERT_EQ(far_mask.CountPairs(), mask.CountPairs());
  }
}

}  // namespace
}  // namespace longspan
