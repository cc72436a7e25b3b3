// What a corpus is made of, and what packing makes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/packing.h"

namespace longspan {

// Lengths in tokens.
struct CorpusLengths {
  int64_t num_documents = 0, num_tokens = 0, longest = 0, median = 0;  // median: the lower of two
  double mean = 0;
  struct Bucket {  // documents of [2^k, 2^(k+1)) tokens, for the k-th
    int64_t num_documents = 0, num_tokens = 0;
  };
  std::vector<Bucket> by_length;  // up to the longest document's
};
CorpusLengths MeasureLengths(const Corpus& corpus);

// One epoch in sequences of T rows.
struct EpochReport {
  int64_t num_sequences = 0;
  int64_t num_rows = 0;    // T · num_sequences
  int64_t num_tokens = 0;  // in the sequences; the other rows are padding
  int64_t num_cut = 0;     // documents that are in more than one piece
  double padding() const {
    return static_cast<double>(num_rows - num_tokens) / static_cast<double>(num_rows);
  }
};
// Of the epoch that a reader at its beginning would read, counted from lengths: O(n log n) time for n
// documents and cuts.
EpochReport MeasureEpoch(const Corpus& corpus, int64_t max_target_length, uint64_t seed, bool shuffle,
                         Packing packing);

// Lines for a person: the shares of documents and of tokens by length, with bars of the tokens'.
std::vector<std::string> LengthTable(const CorpusLengths& lengths);

}  // namespace longspan
