#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "support/expect_error.h"

namespace longspan {
namespace {

constexpr int32_t kNone = kIgnoreTarget;
using Ids = std::vector<int32_t>;

class FakeCorpus final : public Corpus {
 public:
  explicit FakeCorpus(std::vector<Ids> documents) : tokens_(documents), labels_(std::move(documents)) {}
  FakeCorpus(std::vector<Ids> documents, std::vector<Ids> labels)
      : tokens_(std::move(documents)), labels_(std::move(labels)) {}

  int64_t num_documents() const override { return static_cast<int64_t>(tokens_.size()); }
  int64_t num_tokens(int64_t document) const override {
    return static_cast<int64_t>(tokens(document).size());
  }
  void ReadTokens(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    Read(tokens(document), begin, out);
  }
  void ReadLabels(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    Read(labels(document), begin, out);
  }
  std::string DocumentName(int64_t document) const override { return "fake:" + std::to_string(document + 1); }

  const Ids& tokens(int64_t document) const { return tokens_[static_cast<size_t>(document)]; }
  const Ids& labels(int64_t document) const { return labels_[static_cast<size_t>(document)]; }

 private:
  static void Read(const Ids& from, int64_t begin, std::span<int32_t> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = from.at(static_cast<size_t>(begin) + i);
  }
  std::vector<Ids> tokens_, labels_;
};

// Documents of random lengths whose tokens are 1, 2, 3, … over the whole corpus, so that a token says where
// it is from; labels are other numbers, or none for a third of them.
FakeCorpus RandomCorpus(std::mt19937& random, int64_t num_documents, int64_t max_size) {
  std::vector<Ids> tokens, labels;
  int32_t next = 1;
  for (int64_t i = 0; i < num_documents; ++i) {
    const size_t size = 1 + random() % static_cast<uint64_t>(max_size);
    Ids document, label;
    for (size_t j = 0; j < size; ++j, ++next) {
      document.push_back(next);
      label.push_back(random() % 3 == 0 ? kNone : 1000000 + next);
    }
    tokens.push_back(document);
    labels.push_back(label);
  }
  return {tokens, labels};
}

// What a batch holds without its padding.
Ids RealTokens(const Batch& batch) {
  Ids ids;
  for (const Range& d : batch.documents)
    ids.insert(ids.end(), batch.tokens.begin() + d.begin, batch.tokens.begin() + d.end);
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
  const Batch batch = SequenceReader(corpus, 6, 0, false).Next();
  EXPECT_EQ(batch.tokens, (Ids{1, 2, 3, 4, 5, 0}));
  EXPECT_EQ(batch.targets, (Ids{2, 3, kNone, 5, kNone, kNone}));
  EXPECT_EQ(batch.documents, (Documents{{0, 3}, {3, 5}}));
  EXPECT_EQ(batch.num_tokens, 5);
  EXPECT_EQ(batch.num_targets, 3);
}

TEST(Packing, EveryTokenOnce) {
  const FakeCorpus corpus({{1, 2, 3, 4}, {5, 6}, {7, 8, 9}, {10}});
  SequenceReader reader(corpus, 3, 0, false);
  const std::vector<Batch> batches = ReadEpoch(reader);
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_EQ(batches[0].tokens, (Ids{1, 2, 3}));
  EXPECT_EQ(batches[0].targets, (Ids{2, 3, 4}));  // the next piece's first token
  EXPECT_EQ(batches[1].tokens, (Ids{4, 5, 6}));
  EXPECT_EQ(batches[1].targets, (Ids{kNone, 6, kNone}));
  EXPECT_EQ(batches[1].documents, (Documents{{0, 1}, {1, 3}}));
  EXPECT_EQ(batches[2].tokens, (Ids{7, 8, 9}));
  EXPECT_EQ(batches[3].tokens, (Ids{10, 0, 0}));
  EXPECT_EQ(batches[3].num_targets, 0);
}

TEST(Packing, ALongDocumentBeginsANewSequence) {
  const FakeCorpus corpus({{1}, {2, 3, 4, 5, 6, 7, 8, 9}, {10}});
  SequenceReader reader(corpus, 4, 0, false);
  const std::vector<Batch> batches = ReadEpoch(reader);
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_EQ(batches[0].tokens, (Ids{1, 0, 0, 0}));
  EXPECT_EQ(batches[1].tokens, (Ids{2, 3, 4, 5}));
  EXPECT_EQ(batches[1].targets, (Ids{3, 4, 5, 6}));
  EXPECT_EQ(batches[2].tokens, (Ids{6, 7, 8, 9}));
  EXPECT_EQ(batches[2].targets, (Ids{7, 8, 9, kNone}));
  EXPECT_EQ(batches[3].tokens, (Ids{10, 0, 0, 0}));
  EXPECT_EQ(reader.position(), (ReaderPosition{1, 0, 0}));
}

TEST(Packing, LabelsAreWhatTheRowBeforeIsAskedFor) {
  const FakeCorpus corpus({{1, 2, 3, 4, 5, 6}}, {{21, 22, kNone, 24, 25, kNone}});
  SequenceReader reader(corpus, 3, 0);
  const Batch first = reader.Next(), second = reader.Next();
  EXPECT_EQ(first.targets, (Ids{22, kNone, 24}));
  EXPECT_EQ(first.num_targets, 2);
  EXPECT_EQ(second.targets, (Ids{25, kNone, kNone}));
  EXPECT_EQ(second.num_targets, 1);
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

TEST(Packing, AnEpochAgainstBruteForce) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 12);
    const FakeCorpus corpus = RandomCorpus(random, 1 + static_cast<int64_t>(random() % 15), 30);
    const bool shuffle = random() % 2 == 0;
    std::map<int32_t, std::pair<int64_t, size_t>> origin;  // of each token: document and place
    for (int64_t d = 0; d < corpus.num_documents(); ++d)
      for (size_t i = 0; i < corpus.tokens(d).size(); ++i) origin[corpus.tokens(d)[i]] = {d, i};

    SequenceReader reader(corpus, length, 7, shuffle);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const std::vector<Batch> batches = ReadEpoch(reader);
      EXPECT_EQ(static_cast<int64_t>(batches.size()), SequencesPerEpoch(corpus, length, 7, epoch, shuffle));
      Ids all;
      int64_t free = 0;  // rows left in the sequence before
      for (const Batch& batch : batches) {
        ASSERT_EQ(static_cast<int64_t>(batch.tokens.size()), length);
        ASSERT_EQ(static_cast<int64_t>(batch.targets.size()), length);
        EXPECT_EQ(batch.documents, NormalizeDocuments(batch.documents, length));
        Ids expected_tokens(batch.tokens.size(), 0), expected_targets(batch.targets.size(), kNone);
        int64_t row = 0;
        for (const Range& piece : batch.documents) {
          EXPECT_EQ(piece.begin, row);  // no gap inside
          const auto [document, place] = origin.at(batch.tokens[static_cast<size_t>(piece.begin)]);
          const Ids& tokens = corpus.tokens(document);
          const int64_t rest = static_cast<int64_t>(tokens.size() - place);
          // It would not have fitted behind the sequence before, and is whole or fills this one.
          if (row == 0) {
            EXPECT_GT(rest, free);
          }
          EXPECT_EQ(piece.size(), std::min(rest, length));
          if (rest > length) {
            EXPECT_EQ(piece.begin, 0);
          }
          for (size_t i = place; row < piece.end; ++row, ++i) {
            expected_tokens[static_cast<size_t>(row)] = tokens[i];
            if (i + 1 < tokens.size())
              expected_targets[static_cast<size_t>(row)] = corpus.labels(document)[i + 1];
          }
        }
        EXPECT_EQ(batch.tokens, expected_tokens);
        EXPECT_EQ(batch.targets, expected_targets);
        EXPECT_EQ(batch.num_tokens, row);
        EXPECT_EQ(batch.num_targets, length - std::count(batch.targets.begin(), batch.targets.end(), kNone));
        free = length - row;
        const Ids real = RealTokens(batch);
        all.insert(all.end(), real.begin(), real.end());
      }
      // Documents follow each other whole, each of them once.
      std::vector<bool> seen(static_cast<size_t>(corpus.num_documents()), false);
      for (size_t i = 0; i < all.size();) {
        const auto [document, place] = origin.at(all[i]);
        ASSERT_EQ(place, 0u);
        if (!shuffle) {
          ASSERT_EQ(document, std::count(seen.begin(), seen.end(), true));
        }
        ASSERT_FALSE(seen[static_cast<size_t>(document)]);
        seen[static_cast<size_t>(document)] = true;
        for (const int32_t token : corpus.tokens(document)) ASSERT_EQ(all.at(i++), token);
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0);
    }
  }
}

TEST(Packing, ResumesFromAnyPosition) {
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 9);
    const FakeCorpus corpus = RandomCorpus(random, 1 + static_cast<int64_t>(random() % 8), 25);
    SequenceReader straight(corpus, length, 3);
    std::vector<ReaderPosition> positions;
    std::vector<Batch> batches;
    while (straight.position().epoch < 3) {
      positions.push_back(straight.position());
      batches.push_back(straight.Next());
    }
    SequenceReader reused(corpus, length, 3);
    for (size_t i = positions.size(); i-- > 0;) {
      SequenceReader fresh(corpus, length, 3);
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

TEST(Packing, ResumesAtAnotherLength) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    const FakeCorpus corpus = RandomCorpus(random, 1 + static_cast<int64_t>(random() % 8), 40);
    // The order of the epoch's tokens does not depend on the length.
    SequenceReader whole(corpus, 1, 11);
    Ids all;
    for (const Batch& batch : ReadEpoch(whole)) all.push_back(batch.tokens[0]);

    SequenceReader before(corpus, 7, 11);
    Ids read;
    while (before.position().epoch == 0) {
      SequenceReader after(corpus, 5, 11);
      after.Seek(before.position());
      Ids both = read;
      for (const Batch& batch : ReadEpoch(after)) {
        const Ids real = RealTokens(batch);
        both.insert(both.end(), real.begin(), real.end());
      }
      EXPECT_EQ(both, all);
      const Ids real = RealTokens(before.Next());
      read.insert(read.end(), real.begin(), real.end());
    }
    EXPECT_EQ(read, all);
  }
}

TEST(Packing, TenSamplesThreeEpochsStoppedAfterFourteen) {
  std::vector<Ids> samples;
  for (int32_t i = 0; i < 10; ++i) samples.push_back({i, i, i, i});
  const FakeCorpus corpus(samples);
  SequenceReader straight(corpus, 4, 5);
  Ids first_ids;
  ReaderPosition stopped;
  for (int i = 0; i < 30; ++i) {
    if (i == 14) stopped = straight.position();
    first_ids.push_back(straight.Next().tokens[0]);
  }
  SequenceReader resumed(corpus, 4, 5);
  resumed.Seek(stopped);
  for (size_t i = 14; i < 30; ++i) EXPECT_EQ(resumed.Next().tokens[0], first_ids[i]);
  std::vector<Ids> epochs;
  for (int e = 0; e < 3; ++e) {
    Ids epoch(first_ids.begin() + 10 * e, first_ids.begin() + 10 * (e + 1));
    epochs.push_back(epoch);
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, (Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], epochs[2]);
}

TEST(Packing, OrderIsFromTheSeedAlone) {
  std::vector<Ids> samples;
  for (int32_t i = 0; i < 20; ++i) samples.push_back({i});
  const FakeCorpus corpus(samples);
  const auto order = [&](uint64_t seed, bool shuffle) {
    return SequenceReader(corpus, 20, seed, shuffle).Next().tokens;
  };
  EXPECT_EQ(order(1, true), order(1, true));
  EXPECT_NE(order(1, true), order(2, true));
  Ids file_order = order(1, false);
  EXPECT_TRUE(std::is_sorted(file_order.begin(), file_order.end()));
}

TEST(Packing, ShufflesAreUniform) {
  const FakeCorpus corpus({{0}, {1}, {2}, {3}});
  std::map<Ids, int> count;
  constexpr int kRounds = 4800;
  SequenceReader reader(corpus, 4, 9);
  for (int i = 0; i < kRounds; ++i) ++count[reader.Next().tokens];
  ASSERT_EQ(count.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, n] : count)
    chi_squared += (n - kRounds / 24.0) * (n - kRounds / 24.0) / (kRounds / 24.0);
  EXPECT_LT(chi_squared, 55);  // 23 degrees of freedom: exceeded once in 5,000
}

TEST(Packing, SeekRefusesPlacesThatAreNotThere) {
  const FakeCorpus corpus({{1, 2, 3}, {4, 5}});
  SequenceReader reader(corpus, 2, 0, false);
  reader.Next();
  const ReaderPosition before = reader.position();
  for (const ReaderPosition& bad :
       {ReaderPosition{-1, 0, 0}, {0, -1, 0}, {0, 2, 0}, {0, 0, -1}, {0, 0, 3}, {3, 1, 2}}) {
    testing::ExpectError({"no place", std::to_string(bad.document)}, [&] { reader.Seek(bad); });
    EXPECT_EQ(reader.position(), before);
  }
  reader.Seek({3, 1, 1});
  EXPECT_EQ(reader.Next().tokens, (Ids{5, 0}));
  testing::ExpectError(
      {"max_target_length", "0"}, [&] { SequenceReader(corpus, 0, 0); }, ExitCode::kUsage);
}

}  // namespace
}  // namespace longspan
