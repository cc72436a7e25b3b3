// Packing: documents into sequences of exactly T rows, in an order that depends on seed and position alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "data/best_fit.h"
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

// How documents share sequences. Each cuts documents longer than T; none drops a token.
enum class Packing {
  kBestFit,      // a window of documents at a time, as data/best_fit.h says (TRL: bfd_split)
  kConcatenate,  // documents one behind the other, cut wherever a sequence is full (TRL: wrapped)
  kNone,         // a sequence holds one document, or one piece of it
};
struct PackingRow {
  Packing packing;
  std::string_view name;
};
std::span<const PackingRow> PackingTable();
Packing ParsePacking(std::string_view name);  // throws Error(kUsage) with the nearest one

// Where a reader stands. It does not depend on the number of ranks, and a reader of another T goes on from
// it: every token of the epoch is still read once.
struct ReaderPosition {
  int64_t epoch = 0;
  int64_t document = 0;  // place in the epoch's order
  int64_t token = 0;
  // Of best_fit, whose window begins at this token: how many of its sequences were read. The first entry is
  // of the window, each other one of what the ones before it had left, packed anew at another T.
  struct Read {
    int64_t max_target_length = 0;
    int64_t num_sequences = 0;
    friend bool operator==(const Read&, const Read&) = default;
  };
  std::vector<Read> window;
  friend bool operator==(const ReaderPosition&, const ReaderPosition&) = default;
};

// Reads sequences one after the other. Documents come in the epoch's order: a permutation from seed and
// epoch, or the corpus' own. Each piece of a document that is cut is a document of its own for mask and
// positions, but its last row's target is the next piece's first token. An epoch's last sequence is padded,
// so epochs never mix.
class SequenceReader {
 public:
  SequenceReader(const Corpus& corpus, int64_t max_target_length, uint64_t seed, bool shuffle = true,
                 Packing packing = Packing::kBestFit);

  Batch Next() { return Read(NextPieces()); }
  // The same in two parts: what the next sequence holds, which needs lengths only, and its tokens. Documents
  // are the corpus'.
  std::vector<Piece> NextPieces();
  Batch Read(std::span<const Piece> pieces) const;
  static Documents DocumentsOf(std::span<const Piece> pieces);  // that Read's batch will have

  const ReaderPosition& position() const { return position_; }
  void Seek(const ReaderPosition& position);  // throws Error if the corpus has no such place

 private:
  // What best_fit packs at a time: at most kWindowDocuments documents and, but for a last one, as many tokens
  // as kWindowSequences sequences hold.
  struct Window {
    std::vector<std::vector<Piece>> sequences;  // documents are places in the epoch's order
    size_t next = 0;
    ReaderPosition end;  // where the next one begins
  };

  void UseEpoch(int64_t epoch);  // makes order_ that epoch's
  int64_t NumTokensAt(int64_t place) const;
  ReaderPosition After(const ReaderPosition& position, int64_t tokens) const;
  std::vector<Piece> NextInOrder();
  std::vector<Piece> NextInWindow();
  Window OpenWindow(const ReaderPosition& position) const;
  std::vector<std::vector<Piece>> Pack(const std::vector<Piece>& pieces, const ReaderPosition& window,
                                       int64_t max_target_length) const;

  const Corpus& corpus_;
  const int64_t length_;
  const uint64_t seed_;
  const bool shuffle_;
  const Packing packing_;
  ReaderPosition position_;
  int64_t order_epoch_ = -1;
  std::vector<int64_t> order_;
  std::optional<Window> window_;  // the one that position_ is in, once something was read of it
};

}  // namespace longspan
