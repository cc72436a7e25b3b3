// Branches against their meaning: each one behind the stem, as a document of its own.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "core/check.h"
#include "mask/mask.h"
#include "reference/mask.h"
#include "support/expect_error.h"
#include "unit/mask/random_masks.h"

namespace longspan {
namespace {

using testing::ExpectError;

struct Branched {
  Documents documents;
  std::vector<Range> branches;
};

// Documents side by side or with padding between, some of them with one to four branches.
Branched RandomBranches(std::mt19937_64& random) {
  Branched b;
  int64_t row = 0;
  for (uint64_t document = 1 + random() % 3; document > 0; --document) {
    const int64_t begin = row += static_cast<int64_t>(random() % 3);
    row += 1 + static_cast<int64_t>(random() % 8);
    for (uint64_t n = random() % 5; n > 0; --n) {
      const int64_t end = row + 1 + static_cast<int64_t>(random() % 7);
      b.branches.push_back({row, end});
      row = end;
    }
    b.documents.push_back({begin, row});
  }
  return b;
}

// Where a row is in a document made of a stem and the branch it is in.
struct Place {
  size_t document;
  int64_t branch, position;  // branch −1: in the stem
};
std::optional<Place> PlaceOf(const Branched& b, int64_t row) {
  for (size_t d = 0; d < b.documents.size(); ++d) {
    const Range document = b.documents[d];
    if (row < document.begin || row >= document.end) continue;
    int64_t stem_end = document.end;
    for (const Range& branch : b.branches)
      if (branch.begin >= document.begin && branch.end <= document.end)
        stem_end = std::min(stem_end, branch.begin);
    for (const Range& branch : b.branches)
      if (branch.begin <= row && row < branch.end)
        return Place{d, branch.begin, stem_end - document.begin + row - branch.begin};
    return Place{d, -1, row - document.begin};
  }
  return std::nullopt;
}

bool Sees(const MaskSpec& spec, const Branched& b, int64_t row, int64_t key) {
  const auto r = PlaceOf(b, row), k = PlaceOf(b, key);
  if (!r || !k || r->document != k->document) return false;
  if (k->branch >= 0 && k->branch != r->branch) return false;
  return reference::Sees(spec, Documents{{0, 100}}, r->position, k->position);
}

TEST(Branches, RowsSeeTheStemAndTheirOwnBranch) {
  std::mt19937_64 random(1);
  for (int iteration = 0; iteration < 3000; ++iteration) {
    const Branched b = RandomBranches(random);
    MaskSpec spec;
    if (iteration % 4 != 0)
      spec = {.kind = MaskKind::kSlidingWindow,
              .window = iteration % 16 == 1 ? INT64_MAX : 1 + static_cast<int64_t>(random() % 18)};
    const Mask mask = MakeMask(spec, b.documents, b.branches);
    const int64_t length = b.documents.back().end + 2;
    int64_t pairs = 0;
    for (int64_t row = 0; row < length; ++row) {
      const RowIntervals seen = mask.Row(row);
      for (int64_t key = 0; key < length; ++key) {
        ASSERT_EQ(seen.Sees(key), Sees(spec, b, row, key))
            << testing::Describe(spec, b.documents) << ", branches from "
            << (b.branches.empty() ? -1 : b.branches[0].begin) << " row " << row << " key " << key;
        pairs += seen.Sees(key);
      }
    }
    ASSERT_EQ(mask.CountPairs(), pairs);
  }
}

TEST(Branches, PositionsGoOnFromTheStems) {
  std::mt19937_64 random(2);
  for (int iteration = 0; iteration < 500; ++iteration) {
    const Branched b = RandomBranches(random);
    int64_t rows = 0;
    for (const Segment& segment : SegmentsOf(b.documents, b.branches))
      for (int64_t row = segment.rows.begin; row < segment.rows.end; ++row, ++rows)
        ASSERT_EQ(segment.PositionOf(row), PlaceOf(b, row)->position);
    for (const Range& document : b.documents) rows -= document.size();
    ASSERT_EQ(rows, 0);
  }
}

TEST(Branches, WhatIsNoBranchIsRefused) {
  const Documents documents = {{0, 8}, {10, 12}};
  const auto refuse = [&](std::vector<Range> branches, std::string_view why) {
    ExpectError({why}, [&] { SegmentsOf(documents, branches); });
  };
  refuse({{0, 8}}, "does not follow a stem");
  refuse({{4, 7}}, "do not fill it: one must begin at 7");
  refuse({{4, 6}, {7, 8}}, "one must begin at 6");
  refuse({{4, 9}}, "one must begin at 4");
  refuse({{4, 4}, {4, 8}}, "one must begin at 4");
  refuse({{4, 8}, {8, 9}}, "does not follow a stem");
  refuse({{13, 14}}, "lies in no document");
  for (const MaskRow& row : MaskTable()) {
    if (row.append_branch != nullptr) continue;
    ExpectError(
        {"attention_mask=", row.name},
        [&] {
          MakeMask({.kind = row.kind, .window = 1, .chunk = 1}, documents, std::vector<Range>{{4, 8}});
        },
        ExitCode::kUsage);
  }
}

}  // namespace
}  // namespace longspan
