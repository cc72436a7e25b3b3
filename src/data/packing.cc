#include "data/packing.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/names.h"
#include "core/random.h"
#include "core/target.h"

namespace longspan {
namespace {

// A window's size: what a reader holds and packs at a time stays some megabytes and milliseconds, however
// large the corpus, and far more sequences than the few at its end that stay open.
constexpr int64_t kWindowDocuments = 1 << 16, kWindowSequences = 1 << 12;

// Numbers of a position are at most this, so that what is computed from them fits into 64 bits.
constexpr int64_t kMostOfPosition = int64_t{1} << 50;

// Fisher–Yates with one random number a place.
template <class T>
void Shuffle(std::vector<T>& items, const CounterRandom& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.Below(i, i)]);
}

std::span<int32_t> Part(std::vector<int32_t>& v, int64_t begin, int64_t size) {
  return std::span(v).subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
}

}  // namespace

std::span<const PackingRow> PackingTable() {
  static constexpr std::array<PackingRow, 3> kTable = {
      {{Packing::kBestFit, "best_fit"}, {Packing::kConcatenate, "concatenate"}, {Packing::kNone, "none"}}};
  return kTable;
}

Packing ParsePacking(std::string_view name) {
  std::vector<std::string_view> names;
  for (const PackingRow& row : PackingTable()) {
    if (row.name == name) return row.packing;
    names.push_back(row.name);
  }
  throw Error(fmt::format("packing: none is called {}{}", name, Suggestion(name, names)), ExitCode::kUsage);
}

SequenceReader::SequenceReader(const Corpus& corpus, int64_t max_target_length, uint64_t seed, bool shuffle,
                               Packing packing)
    : corpus_(corpus), length_(max_target_length), seed_(seed), shuffle_(shuffle), packing_(packing) {
  Require(ExitCode::kUsage, max_target_length >= 1, "max_target_length is {}; at least 1 is wanted",
          max_target_length);
  CHECK(corpus.num_documents() > 0);
}

void SequenceReader::UseEpoch(int64_t epoch) {
  if (order_epoch_ == epoch) return;
  if (shuffle_ || order_.empty()) {
    order_.resize(static_cast<size_t>(corpus_.num_documents()));
    std::iota(order_.begin(), order_.end(), int64_t{0});
  }
  if (shuffle_) Shuffle(order_, CounterRandom(seed_, fmt::format("shuffle/{}", epoch)));
  order_epoch_ = epoch;
}

int64_t SequenceReader::NumTokensAt(int64_t place) const {
  return corpus_.num_tokens(order_[static_cast<size_t>(place)]);
}

// `tokens` behind `position`, at most to the end of its document.
ReaderPosition SequenceReader::After(const ReaderPosition& position, int64_t tokens) const {
  ReaderPosition after = {position.epoch, position.document, position.token + tokens, {}};
  if (after.token < NumTokensAt(after.document)) return after;
  after.token = 0;
  ++after.document;
  return after.document < corpus_.num_documents() ? after : ReaderPosition{position.epoch + 1, 0, 0, {}};
}

std::vector<Piece> SequenceReader::NextPieces() {
  UseEpoch(position_.epoch);
  return packing_ == Packing::kBestFit ? NextInWindow() : NextInOrder();
}

std::vector<Piece> SequenceReader::NextInOrder() {
  std::vector<Piece> pieces;
  const int64_t epoch = position_.epoch;
  for (int64_t free = length_; free > 0 && position_.epoch == epoch;) {
    const int64_t rows = std::min(free, NumTokensAt(position_.document) - position_.token);
    pieces.push_back(
        {order_[static_cast<size_t>(position_.document)], position_.token, position_.token + rows});
    free = packing_ == Packing::kNone ? 0 : free - rows;
    position_ = After(position_, rows);
  }
  return pieces;
}

std::vector<Piece> SequenceReader::NextInWindow() {
  if (!window_) window_ = OpenWindow(position_);
  if (position_.window.empty() || position_.window.back().max_target_length != length_)
    position_.window.push_back({length_, 0});
  std::vector<Piece> pieces = std::move(window_->sequences[window_->next]);
  for (Piece& piece : pieces) piece.document = order_[static_cast<size_t>(piece.document)];
  ++window_->next;
  ++position_.window.back().num_sequences;
  if (window_->next == window_->sequences.size()) {
    position_ = window_->end;
    window_.reset();
  }
  return pieces;
}

// The window that begins at position's token, packed and read as position.window says. order_ is that
// epoch's.
SequenceReader::Window SequenceReader::OpenWindow(const ReaderPosition& position) const {
  const int64_t first_length = position.window.empty() ? length_ : position.window[0].max_target_length;
  std::vector<Piece> rest;
  Window window;
  window.end = {position.epoch, position.document, position.token, {}};
  for (int64_t tokens = 0; window.end.epoch == position.epoch && tokens / first_length < kWindowSequences &&
                           std::ssize(rest) < kWindowDocuments;) {
    const ReaderPosition& at = window.end;
    const int64_t sequences_left = kWindowSequences - tokens / first_length;
    int64_t size = NumTokensAt(at.document) - at.token;
    // A document that goes on in the next window is cut where it would be cut anyway.
    if (size / first_length >= sequences_left) size = sequences_left * first_length;
    rest.push_back({at.document, at.token, at.token + size});
    tokens += size;
    window.end = After(at, size);
  }

  const auto pack = [&](int64_t length) {
    window.sequences = Pack(rest, position, length);
    window.next = 0;
  };
  for (size_t i = 0; i < position.window.size(); ++i) {
    const auto& [length, num_sequences] = position.window[i];
    pack(length);
    Require(num_sequences < std::ssize(window.sequences),
            "the data have no place (epoch {}, document {}, token {}; {} sequences of {} behind it): only {} "
            "begin there; the run to resume read other data",
            position.epoch, position.document, position.token, num_sequences, length,
            window.sequences.size());
    window.next = static_cast<size_t>(num_sequences);
    if (i + 1 == position.window.size() && length == length_) return window;
    window.sequences.erase(window.sequences.begin(), window.sequences.begin() + num_sequences);
    rest = JoinPieces(window.sequences);
  }
  pack(length_);
  return window;
}

// With shuffling, sequences in an order of their own: best-fit's would have those with many documents first.
std::vector<std::vector<Piece>> SequenceReader::Pack(const std::vector<Piece>& pieces,
                                                     const ReaderPosition& window,
                                                     int64_t max_target_length) const {
  std::vector<std::vector<Piece>> sequences = PackBestFit(pieces, max_target_length);
  if (shuffle_)
    Shuffle(sequences, CounterRandom(seed_, fmt::format("window/{}/{}/{}/{}", window.epoch, window.document,
                                                        window.token, max_target_length)));
  return sequences;
}

Documents SequenceReader::DocumentsOf(std::span<const Piece> pieces) {
  Documents documents;
  int64_t row = 0;
  for (const auto& [document, begin, end] : pieces) {
    documents.push_back({row, row + end - begin});
    row += end - begin;
  }
  return documents;
}

Batch SequenceReader::Read(std::span<const Piece> pieces) const {
  Batch batch;
  batch.documents = DocumentsOf(pieces);
  batch.tokens.assign(static_cast<size_t>(length_), 0);
  batch.targets.assign(static_cast<size_t>(length_), kIgnoreTarget);
  for (const auto& [document, begin, end] : pieces) {
    const int64_t row = batch.num_tokens, rows = end - begin;
    corpus_.ReadTokens(document, begin, Part(batch.tokens, row, rows));
    // Shifted by one; the row of the document's last token is left without a target.
    const int64_t labels = std::min(rows, corpus_.num_tokens(document) - begin - 1);
    corpus_.ReadLabels(document, begin + 1, Part(batch.targets, row, labels));
    batch.num_tokens += rows;
  }
  batch.num_targets = length_ - std::count(batch.targets.begin(), batch.targets.end(), kIgnoreTarget);
  return batch;
}

void SequenceReader::Seek(const ReaderPosition& position) {
  Require(position.epoch >= 0 && position.epoch <= kMostOfPosition && position.document >= 0 &&
              position.document < corpus_.num_documents(),
          "the data have no place (epoch {}, document {}): they have {} documents; the run to resume read "
          "other data",
          position.epoch, position.document, corpus_.num_documents());
  UseEpoch(position.epoch);
  Require(position.token >= 0 && position.token < NumTokensAt(position.document),
          "the data have no place (epoch {}, document {}, token {}): {} has {} tokens; the run to resume "
          "read other data",
          position.epoch, position.document, position.token,
          corpus_.DocumentName(order_[static_cast<size_t>(position.document)]),
          NumTokensAt(position.document));
  Require(ExitCode::kUsage, packing_ == Packing::kBestFit || position.window.empty(),
          "the run to resume stands within a window that packing=best_fit has packed; resume with that");
  for (const auto& [length, num_sequences] : position.window)
    Require(length >= 1 && length <= kMostOfPosition && num_sequences >= 1,
            "the data have no place (epoch {}, document {}) with {} sequences of {} behind it",
            position.epoch, position.document, num_sequences, length);
  std::optional<Window> window;
  if (packing_ == Packing::kBestFit) window = OpenWindow(position);
  window_ = std::move(window);
  position_ = position;
}

}  // namespace longspan
