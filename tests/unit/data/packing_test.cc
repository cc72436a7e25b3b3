#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include "support/expect_error.h"
#include "support/fake_corpus.h"

namespace longspan {
namespace {

using testing::CountingCorpus;
using testing::FakeCorpus;
using testing::Ids;
using testing::RandomLengths;

constexpr int32_t kNone = kIgnoreTarget;

// What a batch holds without its padding.
Ids RealTokens(const Batch& batch) {
  Ids ids;
  for (const Range& d : batch.documents)
    ids.insert(ids.end(), batch.tokens.begin() + d.begin, batch.tokens.begin() + d.end);
  return ids;
}

void AppendTokens(const std::vector<Batch>& batches, Ids* ids) {
  for (const Batch& batch : batches) {
    const Ids real = RealTokens(batch);
    ids->insert(ids->end(), real.begin(), real.end());
  }
}

// 1, 2, 3, …: what an epoch of a counting corpus has, in order.
Ids Counting(size_t size) {
  Ids ids(size);
  for (size_t i = 0; i < size; ++i) ids[i] = static_cast<int32_t>(i) + 1;
  return ids;
}

Ids Sorted(Ids ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

bool operator==(const Batch& a, const Batch& b) {
  return a.tokens == b.tokens && a.targets == b.targets && a.documents == b.documents &&
         a.num_tokens == b.num_tokens && a.num_targets == b.num_targets;
}

std::vector<Batch> ReadEpoch(SequenceReader& reader) {
  std::vector<Batch> batches;
  for (const int64_t epoch = reader.position().epoch; reader.position().epoch == epoch;)
    batches.push_back(reader.Next());
  return batches;
}

TEST(Packing, TargetsAreTheNextTokens) {
  const FakeCorpus corpus({{1, 2, 3, 4, 5, 6, 7, 8}});
  const Batch batch = SequenceReader(corpus, 8, 0).Next();
  EXPECT_EQ(batch.tokens, (Ids{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(batch.targets, (Ids{2, 3, 4, 5, 6, 7, 8, kNone}));
  EXPECT_EQ(batch.num_tokens, 8);
  EXPECT_EQ(batch.num_targets, 7);
}

TEST(Packing, NoTargetCrossesDocumentsOrPadding) {
  const FakeCorpus corpus({{1, 2, 3}, {4, 5}});
  for (const Packing packing : {Packing::kBestFit, Packing::kConcatenate}) {
    const Batch batch = SequenceReader(corpus, 6, 0, false, packing).Next();
    EXPECT_EQ(batch.tokens, (Ids{1, 2, 3, 4, 5, 0}));
    EXPECT_EQ(batch.targets, (Ids{2, 3, kNone, 5, kNone, kNone}));
    EXPECT_EQ(batch.documents, (Documents{{0, 3}, {3, 5}}));
    EXPECT_EQ(batch.num_tokens, 5);
    EXPECT_EQ(batch.num_targets, 3);
  }
}

TEST(Packing, OneDocumentOf257IdsHas256Targets) {
  Ids ids(257);
  for (int32_t i = 0; i < 257; ++i) ids[static_cast<size_t>(i)] = i;
  const FakeCorpus corpus({ids});
  for (const int64_t length : {257, 264}) {
    const Batch batch = SequenceReader(corpus, length, 0).Next();
    EXPECT_EQ(batch.num_targets, 256);
    EXPECT_EQ(batch.num_tokens, 257);
    EXPECT_EQ(batch.documents, (Documents{{0, 257}}));
    EXPECT_EQ(static_cast<int64_t>(batch.tokens.size()), length);
  }
}

// Sequences of an epoch in file order: their tokens, and their targets (0: no target, to be short).
using Rows = std::vector<std::pair<Ids, Ids>>;
Rows RowsOf(const FakeCorpus& corpus, int64_t length, Packing packing) {
  SequenceReader reader(corpus, length, 0, false, packing);
  Rows rows;
  for (Batch& batch : ReadEpoch(reader)) {
    std::replace(batch.targets.begin(), batch.targets.end(), kNone, 0);
    rows.emplace_back(batch.tokens, batch.targets);
  }
  return rows;
}

// A row whose document goes on in another sequence is asked for the token that it goes on with.
TEST(Packing, ByHand) {
  const FakeCorpus first({{1, 2, 3, 4}, {5, 6}, {7, 8, 9}, {10}});
  const Rows shared = {
      {{1, 2, 3}, {2, 3, 4}}, {{4, 5, 6}, {0, 6, 0}}, {{7, 8, 9}, {8, 9, 0}}, {{10, 0, 0}, {0, 0, 0}}};
  EXPECT_EQ(RowsOf(first, 3, Packing::kBestFit), shared);
  EXPECT_EQ(RowsOf(first, 3, Packing::kConcatenate), shared);
  EXPECT_EQ(RowsOf(first, 3, Packing::kNone), (Rows{{{1, 2, 3}, {2, 3, 4}},
                                                    {{4, 0, 0}, {0, 0, 0}},
                                                    {{5, 6, 0}, {6, 0, 0}},
                                                    {{7, 8, 9}, {8, 9, 0}},
                                                    {{10, 0, 0}, {0, 0, 0}}}));

  const FakeCorpus second({{1}, {2, 3, 4, 5, 6, 7, 8, 9}, {10, 11}, {12, 13, 14}});
  EXPECT_EQ(RowsOf(second, 4, Packing::kBestFit), (Rows{{{1, 12, 13, 14}, {0, 13, 14, 0}},
                                                        {{2, 3, 4, 5}, {3, 4, 5, 6}},
                                                        {{6, 7, 8, 9}, {7, 8, 9, 0}},
                                                        {{10, 11, 0, 0}, {11, 0, 0, 0}}}));
  EXPECT_EQ(RowsOf(second, 4, Packing::kConcatenate), (Rows{{{1, 2, 3, 4}, {0, 3, 4, 5}},
                                                            {{5, 6, 7, 8}, {6, 7, 8, 9}},
                                                            {{9, 10, 11, 12}, {0, 11, 0, 13}},
                                                            {{13, 14, 0, 0}, {14, 0, 0, 0}}}));
}

class EachPacking : public ::testing::TestWithParam<Packing> {};

INSTANTIATE_TEST_SUITE_P(Packings, EachPacking,
                         ::testing::Values(Packing::kBestFit, Packing::kConcatenate, Packing::kNone),
                         [](const auto& c) { return std::string(PackingTable()[c.index].name); });

TEST_P(EachPacking, LabelsAreWhatTheRowBeforeIsAskedFor) {
  const FakeCorpus corpus({{1, 2, 3, 4, 5, 6}}, {{21, 22, kNone, 24, 25, kNone}});
  SequenceReader reader(corpus, 3, 0, false, GetParam());
  const Batch first = reader.Next(), second = reader.Next();
  EXPECT_EQ(first.targets, (Ids{22, kNone, 24}));
  EXPECT_EQ(first.num_targets, 2);
  EXPECT_EQ(second.targets, (Ids{25, kNone, kNone}));
  EXPECT_EQ(second.num_targets, 1);
}

TEST_P(EachPacking, AnEpochAgainstBruteForce) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 12);
    const FakeCorpus corpus =
        CountingCorpus(RandomLengths(random, 1 + static_cast<int64_t>(random() % 15), 30), random);
    const bool shuffle = random() % 2 == 0;
    std::map<int32_t, std::pair<int64_t, size_t>> origin;  // of each token: document and place
    for (int64_t d = 0; d < corpus.num_documents(); ++d)
      for (size_t i = 0; i < corpus.tokens(d).size(); ++i) origin[corpus.tokens(d)[i]] = {d, i};

    SequenceReader reader(corpus, length, 7, shuffle, GetParam());
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const std::vector<Batch> batches = ReadEpoch(reader);
      for (const Batch& batch : batches) {
        ASSERT_EQ(static_cast<int64_t>(batch.tokens.size()), length);
        ASSERT_EQ(static_cast<int64_t>(batch.targets.size()), length);
        ASSERT_EQ(batch.documents, NormalizeDocuments(batch.documents, length));
        Ids expected_tokens(batch.tokens.size(), 0), expected_targets(batch.targets.size(), kNone);
        int64_t row = 0;
        for (const Range& piece : batch.documents) {
          EXPECT_EQ(piece.begin, row);  // no gap inside
          const auto [document, place] = origin.at(batch.tokens[static_cast<size_t>(piece.begin)]);
          const Ids& tokens = corpus.tokens(document);
          if (GetParam() != Packing::kConcatenate) {  // cut where it must be
            EXPECT_EQ(static_cast<int64_t>(place) % length, 0);
            EXPECT_EQ(piece.size(), std::min(static_cast<int64_t>(tokens.size() - place), length));
          }
          for (size_t i = place; row < piece.end; ++row, ++i) {
            expected_tokens[static_cast<size_t>(row)] = tokens.at(i);
            if (i + 1 < tokens.size())
              expected_targets[static_cast<size_t>(row)] = corpus.labels(document)[i + 1];
          }
        }
        EXPECT_EQ(batch.tokens, expected_tokens);
        EXPECT_EQ(batch.targets, expected_targets);
        EXPECT_EQ(batch.num_tokens, row);
        EXPECT_EQ(batch.num_targets, length - std::count(batch.targets.begin(), batch.targets.end(), kNone));
        EXPECT_TRUE(GetParam() != Packing::kNone || batch.documents.size() == 1);
        EXPECT_TRUE(GetParam() != Packing::kConcatenate || row == length || &batch == &batches.back());
      }
      Ids all;
      AppendTokens(batches, &all);
      EXPECT_EQ(Sorted(all), Counting(origin.size()));
      if (GetParam() == Packing::kBestFit) continue;
      // Documents follow each other whole, and in file order without shuffling.
      for (size_t i = 0; i < all.size();)
        for (const int32_t token : corpus.tokens(origin.at(all[i]).first)) ASSERT_EQ(all.at(i++), token);
      EXPECT_TRUE(shuffle || std::is_sorted(all.begin(), all.end()));
    }
  }
}

TEST_P(EachPacking, ResumesFromAnyPosition) {
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 9);
    const FakeCorpus corpus =
        CountingCorpus(RandomLengths(random, 1 + static_cast<int64_t>(random() % 8), 25), random);
    SequenceReader straight(corpus, length, 3, true, GetParam());
    std::vector<ReaderPosition> positions;
    std::vector<Batch> batches;
    while (straight.position().epoch < 3) {
      positions.push_back(straight.position());
      batches.push_back(straight.Next());
    }
    SequenceReader reused(corpus, length, 3, true, GetParam());
    for (size_t i = positions.size(); i-- > 0;) {
      SequenceReader fresh(corpus, length, 3, true, GetParam());
      fresh.Seek(positions[i]);
      reused.Seek(positions[i]);
      EXPECT_EQ(fresh.position(), positions[i]);
      for (size_t j = i; j < std::min(i + 4, batches.size()); ++j) {
        EXPECT_TRUE(fresh.Next() == batches[j]) << i << " " << j;
        EXPECT_TRUE(reused.Next() == batches[j]) << i << " " << j;
      }
    }
  }
}

// A run that goes on at other lengths, as often as it likes, still reads every token of the epoch once, and
// each position on the way can be gone on from.
TEST_P(EachPacking, ResumesAtOtherLengths) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const FakeCorpus corpus =
        CountingCorpus(RandomLengths(random, 1 + static_cast<int64_t>(random() % 20), 40), random);
    ReaderPosition position;
    std::vector<Batch> batches;
    while (position.epoch == 0) {
      const int64_t length = 1 + static_cast<int64_t>(random() % 30);
      SequenceReader reader(corpus, length, 11, round % 2 == 0, GetParam());
      reader.Seek(position);
      for (uint64_t i = 0; i < 1 + random() % 4 && reader.position().epoch == 0; ++i)
        batches.push_back(reader.Next());
      position = reader.position();
    }
    EXPECT_EQ(position, (ReaderPosition{1, 0, 0, {}}));
    Ids all;
    AppendTokens(batches, &all);
    EXPECT_EQ(Sorted(all), Counting(static_cast<size_t>(corpus.total_tokens())));
  }
}

TEST_P(EachPacking, TenSamplesThreeEpochsStoppedAfterFourteen) {
  std::vector<Ids> samples;
  for (int32_t i = 0; i < 10; ++i) samples.push_back({i, i, i, i});
  const FakeCorpus corpus(samples);
  SequenceReader straight(corpus, 4, 5, true, GetParam());
  Ids first_ids;
  ReaderPosition stopped;
  for (int i = 0; i < 30; ++i) {
    if (i == 14) stopped = straight.position();
    first_ids.push_back(straight.Next().tokens[0]);
  }
  SequenceReader resumed(corpus, 4, 5, true, GetParam());
  resumed.Seek(stopped);
  for (size_t i = 14; i < 30; ++i) EXPECT_EQ(resumed.Next().tokens[0], first_ids[i]);
  std::vector<Ids> epochs;
  for (int e = 0; e < 3; ++e) {
    epochs.emplace_back(first_ids.begin() + 10 * e, first_ids.begin() + 10 * (e + 1));
    EXPECT_EQ(Sorted(epochs.back()), (Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], epochs[2]);
}

TEST_P(EachPacking, OrderIsFromTheSeedAlone) {
  std::mt19937 random(4);
  const FakeCorpus corpus = CountingCorpus(RandomLengths(random, 40, 12), random);
  const auto order = [&](uint64_t seed, bool shuffle) {
    SequenceReader reader(corpus, 16, seed, shuffle, GetParam());
    Ids ids;
    AppendTokens(ReadEpoch(reader), &ids);
    return ids;
  };
  EXPECT_EQ(order(1, true), order(1, true));
  EXPECT_NE(order(1, true), order(2, true));
  EXPECT_EQ(order(1, false), order(2, false));
}

TEST(Packing, ShufflesAreUniform) {
  constexpr int kRounds = 4800;
  const auto chi_squared = [](const std::map<Ids, int>& count) {
    double sum = 0;
    for (const auto& [order, n] : count)
      sum += (n - kRounds / 24.0) * (n - kRounds / 24.0) / (kRounds / 24.0);
    return sum;
  };
  constexpr double kMost = 55;  // 23 degrees of freedom: exceeded once in 5,000
  std::map<Ids, int> documents, sequences;
  const FakeCorpus small({{0}, {1}, {2}, {3}});
  SequenceReader reader(small, 4, 9);
  for (int i = 0; i < kRounds; ++i) ++documents[reader.Next().tokens];
  ASSERT_EQ(documents.size(), 24u);
  EXPECT_LT(chi_squared(documents), kMost);

  // Of sequences in their window too, whatever their documents' lengths.
  const FakeCorpus unequal({{0, 4, 4}, {1, 4}, {2, 4}, {3}, {3}, {3}});
  SequenceReader windows(unequal, 3, 9);
  for (int i = 0; i < kRounds; ++i) {
    Ids order;
    for (const Batch& batch : ReadEpoch(windows)) order.push_back(Sorted(RealTokens(batch))[0]);
    ++sequences[order];
  }
  ASSERT_EQ(sequences.size(), 24u);
  EXPECT_LT(chi_squared(sequences), kMost);
}

// More documents, and more tokens, than best_fit packs at a time.
TEST(Packing, WindowsEndAndBeginWithoutLoss) {
  std::mt19937 random(5);
  std::vector<int64_t> long_ones = RandomLengths(random, 300, 50);
  long_ones[0] = 30000;
  long_ones[200] = 9000;
  for (const auto& [lengths, length] :
       {std::pair(RandomLengths(random, 70000, 2), int64_t{100}), std::pair(long_ones, int64_t{2})}) {
    const FakeCorpus corpus = CountingCorpus(lengths, random);
    for (const bool shuffle : {false, true}) {
      SequenceReader reader(corpus, length, 3, shuffle);
      std::vector<Batch> batches;
      std::vector<std::pair<ReaderPosition, size_t>> windows = {{reader.position(), 0}};
      while (reader.position().epoch == 0) {
        batches.push_back(reader.Next());
        if (reader.position().window.empty()) windows.emplace_back(reader.position(), batches.size());
      }
      Ids all;
      AppendTokens(batches, &all);
      EXPECT_EQ(Sorted(all), Counting(static_cast<size_t>(corpus.total_tokens())));
      ASSERT_GE(windows.size(), 3u);
      windows.pop_back();
      for (const auto& [position, i] : windows) {
        SequenceReader resumed(corpus, length, 3, shuffle);
        resumed.Seek(position);
        for (size_t j = i; j < std::min(i + 3, batches.size()); ++j)
          EXPECT_TRUE(resumed.Next() == batches[j]);
      }
    }
  }
}

TEST(Packing, BestFitGoesOnWhereAnotherPackingStopped) {
  std::mt19937 random(6);
  const FakeCorpus corpus = CountingCorpus(RandomLengths(random, 20, 30), random);
  SequenceReader before(corpus, 7, 3, true, Packing::kConcatenate);
  std::vector<Batch> batches;
  for (int i = 0; i < 10; ++i) batches.push_back(before.Next());
  SequenceReader after(corpus, 9, 3, true, Packing::kBestFit);
  after.Seek(before.position());
  const ReaderPosition between = [&] {
    batches.push_back(after.Next());
    return after.position();
  }();
  for (Batch& batch : ReadEpoch(after)) batches.push_back(std::move(batch));
  Ids all;
  AppendTokens(batches, &all);
  EXPECT_EQ(Sorted(all), Counting(static_cast<size_t>(corpus.total_tokens())));

  testing::ExpectError(
      {"packing=best_fit"}, [&] { before.Seek(between); }, ExitCode::kUsage);
}

TEST(Packing, SeekRefusesPlacesThatAreNotThere) {
  const FakeCorpus corpus({{1, 2, 3}, {4, 5}});
  SequenceReader reader(corpus, 2, 0, false);
  reader.Next();
  const ReaderPosition before = reader.position();
  for (const ReaderPosition& bad : {ReaderPosition{-1, 0, 0, {}},
                                    {0, -1, 0, {}},
                                    {0, 2, 0, {}},
                                    {0, 0, -1, {}},
                                    {0, 0, 3, {}},
                                    {3, 1, 2, {}},
                                    {0, 0, 0, {{2, 3}}},
                                    {0, 0, 0, {{0, 1}}},
                                    {0, 0, 0, {{2, 0}}},
                                    {std::numeric_limits<int64_t>::max(), 0, 0, {}},
                                    {0, 0, 1, {{std::numeric_limits<int64_t>::max(), 1}}},
                                    {0, 0, 0, {{2, 1}, {1, 3}}}}) {
    testing::ExpectError({"no place", std::to_string(bad.document)}, [&] { reader.Seek(bad); });
    EXPECT_EQ(reader.position(), before);
  }
  EXPECT_EQ(reader.Next().tokens, (Ids{3, 0}));
  reader.Seek({3, 1, 1, {}});
  EXPECT_EQ(reader.Next().tokens, (Ids{5, 0}));
  testing::ExpectError(
      {"max_target_length", "0"}, [&] { SequenceReader(corpus, 0, 0); }, ExitCode::kUsage);
}

TEST(Packing, NamesAreOfTheTable) {
  for (const PackingRow& row : PackingTable()) EXPECT_EQ(ParsePacking(row.name), row.packing);
  testing::ExpectError(
      {"best-fit", "best_fit"}, [] { ParsePacking("best-fit"); }, ExitCode::kUsage);
}

}  // namespace
}  // namespace longspan
