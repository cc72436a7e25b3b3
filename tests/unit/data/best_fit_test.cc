#include "data/best_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>

namespace longspan {

void PrintTo(const Piece& p, std::ostream* out) { *out << p.document << ":" << p.begin << "-" << p.end; }

namespace {

using Sequences = std::vector<std::vector<Piece>>;

// The same by definition: every piece looks at every sequence. Of equally full ones the last counts that came
// to be so full.
Sequences PackByLooking(std::vector<Piece> pieces, int64_t length) {
  struct Open {
    int64_t used = 0, since = 0;
    std::vector<Piece> pieces;
  };
  std::vector<Piece> cut;
  for (Piece p : pieces) {
    while (p.size() > length) {
      cut.push_back({p.document, p.begin, p.begin + length});
      p.begin += length;
    }
    cut.push_back(p);
  }
  std::vector<Open> open;
  int64_t time = 0;
  for (int64_t size = length; size > 0; --size) {
    for (const Piece& piece : cut) {
      if (piece.size() != size) continue;
      Open* best = nullptr;
      for (Open& o : open) {
        if (o.used + size > length) continue;
        if (best == nullptr || std::pair(o.used, o.since) > std::pair(best->used, best->since)) best = &o;
      }
      if (best == nullptr) best = &open.emplace_back();
      best->used += size;
      best->since = ++time;
      best->pieces.push_back(piece);
    }
  }
  const auto first = [](const Piece& a, const Piece& b) {
    return std::pair(a.document, a.begin) < std::pair(b.document, b.begin);
  };
  Sequences sequences;
  for (Open& o : open) {
    std::sort(o.pieces.begin(), o.pieces.end(), first);
    sequences.push_back(o.pieces);
  }
  std::sort(sequences.begin(), sequences.end(),
            [&](const auto& a, const auto& b) { return first(a[0], b[0]); });
  return sequences;
}

TEST(BestFit, EqualsLookingAtEverySequence) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 40);
    std::vector<Piece> pieces;
    for (int64_t document = 0; document < static_cast<int64_t>(random() % 60); ++document) {
      const int64_t begin = static_cast<int64_t>(random() % 5);
      pieces.push_back({document, begin, begin + 1 + static_cast<int64_t>(random() % 50)});
    }
    const Sequences sequences = PackBestFit(pieces, length);
    EXPECT_EQ(sequences, PackByLooking(pieces, length)) << "round " << round;
    EXPECT_EQ(JoinPieces(sequences), pieces) << "round " << round;
    // No two sequences would fit into one.
    std::vector<int64_t> used;
    for (const auto& sequence : sequences) {
      used.push_back(0);
      for (const Piece& piece : sequence) used.back() += piece.size();
      EXPECT_LE(used.back(), length);
    }
    std::sort(used.begin(), used.end());
    if (used.size() >= 2) {
      EXPECT_GT(used[0] + used[1], length);
    }
  }
}

TEST(BestFit, FillsTheFullestThatHasRoom) {
  const std::vector<Piece> pieces = {{0, 0, 6}, {1, 0, 7}, {2, 0, 3}, {3, 0, 4}, {4, 0, 10}, {5, 0, 23}};
  EXPECT_EQ(PackBestFit(pieces, 10), (Sequences{{{0, 0, 6}, {3, 0, 4}},
                                                {{1, 0, 7}, {2, 0, 3}},
                                                {{4, 0, 10}},
                                                {{5, 0, 10}},
                                                {{5, 10, 20}},
                                                {{5, 20, 23}}}));
  EXPECT_TRUE(PackBestFit({}, 10).empty());
}

TEST(BestFit, JoinsWhatContinues) {
  EXPECT_EQ(JoinPieces({{{2, 4, 6}}, {{0, 0, 3}, {2, 0, 2}}, {{2, 6, 9}}, {{3, 9, 11}}}),
            (std::vector<Piece>{{0, 0, 3}, {2, 0, 2}, {2, 4, 9}, {3, 9, 11}}));
}

}  // namespace
}  // namespace longspan
