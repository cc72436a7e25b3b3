#include "data/data_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/fake_corpus.h"

namespace longspan {
namespace {

using testing::CountingCorpus;
using testing::FakeCorpus;
using testing::RandomLengths;

TEST(DataReport, LengthsAgainstSorting) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<int64_t> lengths = RandomLengths(random, 1 + static_cast<int64_t>(random() % 30), 100);
    const CorpusLengths got = MeasureLengths(CountingCorpus(lengths, random));
    std::sort(lengths.begin(), lengths.end());
    int64_t tokens = 0, in_buckets = 0;
    for (const int64_t length : lengths) tokens += length;
    EXPECT_EQ(got.num_documents, std::ssize(lengths));
    EXPECT_EQ(got.num_tokens, tokens);
    EXPECT_EQ(got.longest, lengths.back());
    EXPECT_EQ(got.median, lengths[(lengths.size() - 1) / 2]);
    EXPECT_DOUBLE_EQ(got.mean, static_cast<double>(tokens) / static_cast<double>(lengths.size()));
    for (size_t k = 0; k < got.by_length.size(); ++k) {
      const auto is_in = [&](int64_t n) { return n >= int64_t{1} << k && n < int64_t{2} << k; };
      EXPECT_EQ(got.by_length[k].num_documents, std::count_if(lengths.begin(), lengths.end(), is_in));
      in_buckets += got.by_length[k].num_tokens;
    }
    EXPECT_EQ(in_buckets, tokens);
    EXPECT_GT(got.by_length.back().num_documents, 0);
  }
}

// Against the sequences themselves.
TEST(DataReport, EpochsAgainstReading) {
  std::mt19937 random(2);
  for (const PackingRow& packing : PackingTable()) {
    for (int round = 0; round < 20; ++round) {
      const int64_t length = 1 + static_cast<int64_t>(random() % 20);
      const FakeCorpus corpus = CountingCorpus(RandomLengths(random, 25, 40), random);
      const EpochReport got = MeasureEpoch(corpus, length, 5, true, packing.packing);
      SequenceReader reader(corpus, length, 5, true, packing.packing);
      int64_t sequences = 0, padding = 0, pieces = 0;
      while (reader.position().epoch == 0) {
        const Batch batch = reader.Next();
        ++sequences;
        padding += length - batch.num_tokens;
        pieces += std::ssize(batch.documents);
      }
      EXPECT_EQ(got.num_sequences, sequences);
      EXPECT_EQ(got.num_rows, sequences * length);
      EXPECT_EQ(got.num_tokens, corpus.total_tokens());  // none dropped
      EXPECT_EQ(got.num_rows - got.num_tokens, padding);
      EXPECT_DOUBLE_EQ(got.padding(), static_cast<double>(padding) / static_cast<double>(sequences * length));
      EXPECT_LE(got.num_cut, pieces - corpus.num_documents());
      if (packing.packing == Packing::kConcatenate) continue;
      int64_t longer = 0;
      for (int64_t d = 0; d < corpus.num_documents(); ++d) longer += corpus.num_tokens(d) > length;
      EXPECT_EQ(got.num_cut, longer);
    }
  }
}

TEST(DataReport, CutsByHand) {
  std::mt19937 random(3);
  const FakeCorpus corpus = CountingCorpus({3, 4, 5, 4}, random);
  EXPECT_EQ(MeasureEpoch(corpus, 4, 0, false, Packing::kConcatenate).num_cut, 2);
  EXPECT_EQ(MeasureEpoch(corpus, 4, 0, false, Packing::kBestFit).num_cut, 1);
  EXPECT_EQ(MeasureEpoch(corpus, 4, 0, false, Packing::kBestFit).num_sequences, 4);
  EXPECT_EQ(MeasureEpoch(corpus, 4, 0, false, Packing::kNone).num_sequences, 5);
}

TEST(DataReport, LengthsAsATable) {
  std::mt19937 random(4);
  const FakeCorpus corpus = CountingCorpus({5, 7, 1100, 40, 48, 600}, random);
  EXPECT_EQ(LengthTable(MeasureLengths(corpus)),
            (std::vector<std::string>{"      length  documents    tokens",              //
                                      "   4 to    8     33.3 %     0.7 %",              //
                                      "   8 to   16      0.0 %     0.0 %",              //
                                      "  16 to   32      0.0 %     0.0 %",              //
                                      "  32 to   64     33.3 %     4.9 %  █",           //
                                      "  64 to  128      0.0 %     0.0 %",              //
                                      " 128 to  256      0.0 %     0.0 %",              //
                                      " 256 to  512      0.0 %     0.0 %",              //
                                      " 512 to   1K     16.7 %    33.3 %  ██████████",  //
                                      "  1K to   2K     16.7 %    61.1 %  ██████████████████"}));
}

}  // namespace
}  // namespace longspan
