// Where sequences are cut into blocks.
#include "backend/cpu/attention_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mask/mask.h"

namespace longspan::cpu {
namespace {

// By definition, of the beginnings of runs.
std::vector<int64_t> PlacesByRows(const Mask& mask, int64_t length) {
  std::vector<int64_t> places;
  for (const RowRun& run : mask.runs()) {
    const int64_t place = run.rows.begin;
    bool falls_apart = true;
    for (int64_t row = 0; row < length; ++row)
      for (int64_t key = 0; key < length; ++key)
        if ((row < place) != (key < place) && mask.Row(row).Sees(key)) falls_apart = false;
    if (falls_apart) places.push_back(place);
  }
  return places;
}

TEST(PlacesToCut, AreWhereNothingIsSeenAcross) {
  const std::vector<Range> documents = {{0, 7}, {7, 8}, {8, 20}, {23, 40}};  // and padding
  const std::vector<MaskSpec> specs = {{.kind = MaskKind::kCausal},
                                       {.kind = MaskKind::kFull},
                                       {.kind = MaskKind::kSlidingWindow, .window = 5},
                                       {.kind = MaskKind::kChunked, .chunk = 4}};
  for (const MaskSpec& spec : specs) {
    const Mask mask = MakeMask(spec, documents);
    const std::vector<int64_t> places = PlacesToCut(mask);
    EXPECT_EQ(places, PlacesByRows(mask, 40));
    for (const Range& document : documents) EXPECT_TRUE(std::ranges::binary_search(places, document.begin));
  }
}

TEST(PlacesToCut, NotWhereLaterRowsSeeEarlierKeys) {
  // Rows 10 … 19 see nothing of rows before, rows 20 … 29 do again; rows 30 … 39 are seen by rows before.
  const auto run = [](Range rows, Range keys) {
    RowRun r{.rows = rows, .num_intervals = 1, .intervals = {}};
    r.intervals[0] = {.begin = {.offset = keys.begin}, .end = {.offset = keys.end}};
    return r;
  };
  const Mask mask(
      {run({0, 10}, {0, 10}), run({10, 20}, {10, 20}), run({20, 30}, {9, 31}), run({30, 40}, {30, 40})});
  EXPECT_EQ(PlacesToCut(mask), PlacesByRows(mask, 40));
  EXPECT_EQ(PlacesToCut(mask), std::vector<int64_t>{0});
}

TEST(CutIntoBlocks, CutsShortWhereMoreThanHalfIsLeft) {
  using Cuts = std::vector<int64_t>;
  EXPECT_EQ(CutIntoBlocks(0, 9, {}), Cuts({0}));
  EXPECT_EQ(CutIntoBlocks(9, 9, {}), Cuts({0, 9}));
  EXPECT_EQ(CutIntoBlocks(20, 9, {}), Cuts({0, 9, 18, 20}));
  EXPECT_EQ(CutIntoBlocks(24, 9, Cuts({0, 8, 16})), Cuts({0, 8, 16, 24}));
  EXPECT_EQ(CutIntoBlocks(20, 9, Cuts({4, 13})), Cuts({0, 9, 18, 20}));     // 4 of 9 are too few
  EXPECT_EQ(CutIntoBlocks(20, 9, Cuts({5, 6, 15})), Cuts({0, 6, 15, 20}));  // the last that will do
  EXPECT_EQ(CutIntoBlocks(12, 6, Cuts({6})), Cuts({0, 6, 12}));
}

TEST(CutIntoBlocks, OfPanelsAtGlobalIndices) {
  const std::vector<KeyPanel> panels = CutIntoPanels(std::vector<Range>{{0, 200}, {512, 1024}});
  ASSERT_EQ(panels.size(), 12u);  // the second span begins with panel 4
  EXPECT_EQ(CutIntoBlocks(panels, 7, std::vector<int64_t>{0, 300, 512, 600}),
            (std::vector<int64_t>{0, 4, 11, 12}));
}

TEST(Reach, InBlocksOfDifferentSizes) {
  const std::vector<int64_t> begins = {0, 4, 11, 12};
  const Reach reach = Reach{{Range{0, 4}, Range{11, 12}}}.InBlocks(begins);
  EXPECT_TRUE(reach.Contains(0));
  EXPECT_FALSE(reach.Contains(1));
  EXPECT_TRUE(reach.Contains(2));
  const Reach joined = Reach{{Range{3, 5}, Range{11, 12}}}.InBlocks(begins);
  EXPECT_EQ(joined.begin(), 0);
  EXPECT_EQ(joined.end(), 3);
  EXPECT_EQ(joined.CountBelow(3), 3);
}

}  // namespace
}  // namespace longspan::cpu
