#include "data/piece_cache.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace longspan {
namespace {

using Ids = std::vector<int32_t>;

// `count` ids that hardly another piece has.
Ids IdsOf(std::string_view piece, size_t count) {
  Ids ids(count);
  const size_t hash = std::hash<std::string_view>{}(piece);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((hash >> i % 32) % 1000000);
  return ids;
}

void ExpectKept(size_t num_bytes, size_t num_ids, bool is_kept) {
  PieceCache cache;
  const std::string piece(num_bytes, 'x');
  int times = 0;
  const auto encode = [&](std::string_view p, Ids* ids) {
    ++times;
    const Ids added = IdsOf(p, num_ids);
    ids->insert(ids->end(), added.begin(), added.end());
  };
  Ids ids = {-1}, wanted = {-1};
  for (int i = 0; i < 3; ++i) {
    cache.Append(piece, &ids, encode);
    const Ids more = IdsOf(piece, num_ids);
    wanted.insert(wanted.end(), more.begin(), more.end());
  }
  EXPECT_EQ(ids, wanted) << num_bytes << " " << num_ids;
  EXPECT_EQ(times, is_kept ? 1 : 3) << num_bytes << " " << num_ids;
}

TEST(PieceCache, KeepsWhatHasRoom) {
  ExpectKept(30, 8, true);
  ExpectKept(31, 8, false);
  ExpectKept(30, 9, false);
  ExpectKept(1, 0, true);
}

// Pieces that replace each other, differ in any one byte, or are another's beginning.
TEST(PieceCache, NeverGivesAnothersIds) {
  std::mt19937 random(4);
  PieceCache cache;
  std::string base(30, 'a');
  for (int i = 0; i < 200000; ++i) {
    if (random() % 50 == 0) base[random() % base.size()] = static_cast<char>('a' + random() % 26);
    std::string piece = base.substr(0, 1 + random() % base.size());
    if (random() % 2 == 0) piece[random() % piece.size()] = static_cast<char>('a' + random() % 26);
    const Ids wanted = IdsOf(piece, 1 + piece.size() / 5);
    Ids ids;
    cache.Append(piece, &ids, [&](std::string_view p, Ids* out) { *out = IdsOf(p, 1 + p.size() / 5); });
    ASSERT_EQ(ids, wanted) << piece;
  }
}

}  // namespace
}  // namespace longspan
