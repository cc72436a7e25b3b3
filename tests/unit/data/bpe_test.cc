#include "data/bpe.h"

#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <random>

#include "data/utf8.h"

namespace longspan {
namespace {

using Ids = std::vector<int32_t>;
using Alphabet = BpeSpec::Alphabet;

// By the definition: look through all neighbours for the least rank, merge the leftmost, begin again.
Ids MergeByDefinition(Ids ids, const std::vector<BpeSpec::Merge>& merges) {
  std::map<std::pair<int32_t, int32_t>, BpeSpec::Merge> by_pair;
  for (const auto& merge : merges) by_pair[{merge.left, merge.right}] = merge;
  while (true) {
    const BpeSpec::Merge* best = nullptr;
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = by_pair.find({ids[i], ids[i + 1]});
      if (found == by_pair.end() || (best != nullptr && found->second.rank >= best->rank)) continue;
      best = &found->second;
      best_at = i;
    }
    if (best == nullptr) return ids;
    ids[best_at] = best->result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

// Letters (the first `num_letters` of "abcdé…") and random merges of tokens made before, ranks in random
// order.
BpeSpec RandomSpec(std::mt19937& random, Alphabet alphabet, int num_letters, int num_merges) {
  const std::vector<std::string> letters = {"a", "b", "c", "d", "\u00e9", "\u4e2d"};
  BpeSpec spec;
  spec.alphabet = alphabet;
  std::vector<std::string> tokens;
  const auto add = [&](const std::string& token) {
    const auto [place, is_new] = spec.ids.emplace(token, static_cast<int32_t>(tokens.size()));
    if (is_new) tokens.push_back(token);
    return place->second;
  };
  for (int i = 0; i < num_letters; ++i) {
    if (alphabet == Alphabet::kCharacters) {
      add(letters[static_cast<size_t>(i)]);
    } else {
      for (const char c : letters[static_cast<size_t>(i)]) add({c});
    }
  }
  for (int i = 0; i < num_merges; ++i) {
    const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
    if (left.size() + right.size() > 12) continue;
    spec.merges.push_back({spec.ids[left], spec.ids[right], add(left + right), 0});
  }
  std::shuffle(spec.merges.begin(), spec.merges.end(), random);
  for (size_t i = 0; i < spec.merges.size(); ++i) spec.merges[i].rank = static_cast<uint32_t>(i);
  return spec;
}

Ids Encode(const BpeSpec& spec, std::string_view text) {
  Bpe::Scratch scratch;
  Ids ids;
  Bpe(spec).Encode(text, scratch, &ids);
  return ids;
}

TEST(Bpe, MergesAsTheDefinitionSays) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const auto alphabet = trial % 2 == 0 ? Alphabet::kBytes : Alphabet::kCharacters;
    const int num_letters = 1 + static_cast<int>(random() % 6);
    const BpeSpec spec = RandomSpec(random, alphabet, num_letters, static_cast<int>(random() % 30));
    const Bpe bpe(spec);
    Bpe::Scratch scratch;
    for (int i = 0; i < 30; ++i) {
      std::string text;
      Ids symbols;
      const std::vector<std::string> letters = {"a", "b", "c", "d", "\u00e9", "\u4e2d"};
      for (size_t length = random() % 60; length > 0; --length) {
        const std::string& letter = letters[random() % static_cast<size_t>(num_letters)];
        text += letter;
        if (alphabet == Alphabet::kCharacters) {
          symbols.push_back(spec.ids.at(letter));
        } else {
          for (const char c : letter) symbols.push_back(spec.ids.at({c}));
        }
      }
      const Ids wanted = MergeByDefinition(symbols, spec.merges);
      // Twice: the second time a short piece is known already.
      for (int repetition = 0; repetition < 2; ++repetition) {
        Ids ids = {-7};
        bpe.Encode(text, scratch, &ids);
        ids.erase(ids.begin());
        ASSERT_EQ(ids, wanted) << text;
      }
    }
  }
}

TEST(Bpe, OfEqualMergesTheLastCounts) {
  BpeSpec spec;
  spec.ids = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}};
  spec.merges = {{0, 1, 3, 0}, {1, 2, 4, 1}, {0, 1, 3, 2}};
  EXPECT_EQ(Encode(spec, "abc"), (Ids{0, 4}));
}

TEST(Bpe, WholePiecesPassOverTheMerges) {
  BpeSpec spec;
  spec.ids = {{"a", 0}, {"b", 1}, {"ab", 2}, {"aba", 3}};
  spec.merges = {{0, 1, 2, 0}};
  EXPECT_EQ(Encode(spec, "aba"), (Ids{2, 0}));
  spec.whole_pieces = true;
  EXPECT_EQ(Encode(spec, "aba"), (Ids{3}));
  EXPECT_EQ(Encode(spec, "abab"), (Ids{2, 2}));
}

TEST(Bpe, ZeroBytesAreBytes) {
  BpeSpec spec;
  spec.ids = {{std::string(1, '\0'), 0}, {"a", 1}};
  EXPECT_EQ(Encode(spec, std::string_view("\0", 1)), (Ids{0}));
  EXPECT_EQ(Encode(spec, std::string_view("\0a\0", 3)), (Ids{0, 1, 0}));
}

TEST(Bpe, UnknownCharacters) {
  BpeSpec spec;
  spec.alphabet = Alphabet::kCharacters;
  spec.ids = {{"?", 0}, {"a", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}, {"aa", 4}};
  spec.merges = {{1, 1, 4, 0}};
  EXPECT_EQ(Encode(spec, "a\u00e9\u4e2da"), (Ids{4})) << "left out, and what was apart meets";
  spec.unknown_id = 0;
  EXPECT_EQ(Encode(spec, "a\u00e9\u4e2da"), (Ids{1, 0, 0, 1}));
  spec.fuse_unknown = true;
  EXPECT_EQ(Encode(spec, "a\u00e9\u4e2da\u4e2d"), (Ids{1, 0, 1, 0}));
  spec.byte_ids.emplace().fill(-1);
  (*spec.byte_ids)[0xC3] = 2;
  EXPECT_EQ(Encode(spec, "\u00e9"), (Ids{0})) << "not all of its bytes have a token";
  (*spec.byte_ids)[0xA9] = 3;
  EXPECT_EQ(Encode(spec, "a\u00e9\u4e2da"), (Ids{1, 2, 3, 0, 1}));
  EXPECT_EQ(Encode(spec, "\u4e2d\u00e9\u4e2da"), (Ids{2, 3, 0, 1}))
      << "as Hugging Face's library orders them";
}

// Merges of byte tokens and of the unknown token reach over any seam.
TEST(Bpe, MergesOfByteTokens) {
  BpeSpec spec;
  spec.alphabet = Alphabet::kCharacters;
  spec.ids = {{"a", 0}, {"<0xC3>", 1}, {"<0xA9>", 2}, {"<0xC3><0xA9>", 3}, {"?", 4}, {"a?", 5}};
  spec.byte_ids.emplace().fill(-1);
  (*spec.byte_ids)[0xC3] = 1;
  (*spec.byte_ids)[0xA9] = 2;
  spec.unknown_id = 4;
  spec.merges = {{1, 2, 3, 0}, {0, 4, 5, 1}};
  EXPECT_EQ(Encode(spec, "a\u00e9a\u4e2d"), (Ids{0, 3, 5}));
}

// Time grows hardly faster than the text: 16 times the text takes far less than 256 times as long.
TEST(Bpe, LongRunsAreNoTrap) {
  BpeSpec spec;
  std::string token = "a";
  spec.ids = {{"a", 0}, {"b", 1}, {"ba", 2}};
  spec.merges = {{1, 0, 2, 0}};
  for (int32_t id = 3; id < 8; ++id) {
    const int32_t half = spec.ids.at(token);
    token += token;
    spec.ids[token] = id;
    spec.merges.push_back({half, half, id, static_cast<uint32_t>(id)});
  }
  const Bpe bpe(spec);
  Bpe::Scratch scratch;
  const auto seconds = [&](size_t length) {
    Ids ids;
    const std::clock_t begin = std::clock();
    bpe.Encode(std::string(length, 'a'), scratch, &ids);
    EXPECT_EQ(ids.size(), length / 32);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  const double first = seconds(1 << 16), last = seconds(1 << 20);
  EXPECT_LT(last, 100 * first + 0.1);
}

}  // namespace
}  // namespace longspan
