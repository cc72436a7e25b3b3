// Packing: documents into sequences of exactly T rows, in an order that depends on seed and position alone.
#pragma once

#include <cstdint>
#include <vector>

#include "data/corpus.h"
#include "mask/mask.h"

namespace longspan {

// One packed sequence, T rows. Targets are already shifted: row i is asked for targets[i].
struct Batch {
  std::vector<int32_t> tokens;   // (T); 0 in padding
  std::vector<int32_t> targets;  // (T); kIgnoreTarget: none. A document's last token has none.
  Documents documents;           // normalized; gaps are padding
  std::vector<Range> branches;   // of some of these documents (mask/mask.h); of a text that is read: none
  int64_t num_tokens = 0;        // rows that are no padding
  int64_t num_targets = 0;
};

// Where a reader stands: the next token to read. Independent of T and of the number of ranks.
struct ReaderPosition {
  int64_t epoch = 0;
  int64_t document = 0;  // place in the epoch's order
  int64_t token = 0;
  friend bool operator==(const ReaderPosition&, const ReaderPosition&) = default;
};

// Reads sequences one after the other. Documents come in the epoch's order (a permutation from seed and
// epoch); each is put behind the one before if it fits, else starts a new sequence; one longer than T is cut
// into consecutive pieces, each a document of its own for mask and positions, whose last row's target is the
// next piece's first token. An epoch's last sequence is padded, so epochs never mix. No token is dropped.
class SequenceReader {
 public:
  SequenceReader(const Corpus& corpus, int64_t max_target_length, uint64_t seed, bool shuffle = true);

  Batch Next();
  ReaderPosition position() const { return position_; }
  void Seek(const ReaderPosition& position);  // throws Error if the corpus has no such place

 private:
  int64_t DocumentAt(const ReaderPosition& position);

  const Corpus& corpus_;
  const int64_t length_;
  const uint64_t seed_;
  const bool shuffle_;
  ReaderPosition position_;
  int64_t order_epoch_ = -1;
  std::vector<int64_t> order_;
};

// The number of sequences that one whole epoch makes. Reads lengths only.
int64_t SequencesPerEpoch(const Corpus& corpus, int64_t max_target_length, uint64_t seed, int64_t epoch,
                          bool shuffle = true);

}  // namespace longspan
