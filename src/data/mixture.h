// Mixtures: sequences drawn from several corpora by weight.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/packing.h"

namespace longspan {

// Where sequences come from. A run on one corpus has one.
struct DataSource {
  std::string path;
  double weight = 1;  // > 0; its share of the sequences is weight / Σ weights
  std::unique_ptr<Corpus> corpus;
};

// Which source each sequence is from: always one that is due, and of these the one that would be late first.
// Of n sequences each source then has its share n · weight / Σ weights to less than one (the earliest
// deadline first within Pfair's windows: Baruah et al., "Proportionate progress", Algorithmica 15, 1996).
class Dealer {
 public:
  explicit Dealer(std::vector<double> weights);

  size_t Next();
  const std::vector<int64_t>& counts() const { return counts_; }  // of each source so far
  void set_counts(std::vector<int64_t> counts) { counts_ = std::move(counts); }

 private:
  std::vector<double> shares_;  // sum 1
  std::vector<int64_t> counts_;
};

// Where the reader of one source stands.
struct SourcePosition {
  std::string path;
  double weight = 1;
  int64_t num_sequences = 0;  // read since the mixture has these sources and weights
  ReaderPosition reader;
  friend bool operator==(const SourcePosition&, const SourcePosition&) = default;
};

// Reads sequences of `sources`, which outlive it, each with its own epochs, order and position.
class MixtureReader {
 public:
  MixtureReader(std::span<const DataSource> sources, int64_t max_target_length, uint64_t seed, bool shuffle,
                Packing packing);

  // What a sequence will hold, by lengths alone, and its tokens.
  struct Plan {
    size_t source = 0;
    std::vector<Piece> pieces;
  };
  Plan NextPlan();
  Batch Read(const Plan& plan) const { return readers_[plan.source].Read(plan.pieces); }
  Batch Next() { return Read(NextPlan()); }

  std::vector<SourcePosition> positions() const;
  // Goes on from there. Sources are known by their paths, but for one that stands alone on both sides: its
  // data may have moved. A source that has no position begins at its beginning, and shares are counted anew
  // if sources or weights differ. Throws Error, naming the source, if it has no such place.
  void Seek(std::span<const SourcePosition> positions);

 private:
  const std::span<const DataSource> sources_;
  std::vector<SequenceReader> readers_;
  Dealer dealer_;
};

}  // namespace longspan
