#include "data/packing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "core/target.h"

namespace longspan {
namespace {

// Documents in the order of an epoch: Fisher–Yates with one random number a place, or the corpus' own order.
std::vector<int64_t> EpochOrder(int64_t num_documents, uint64_t seed, int64_t epoch, bool shuffle) {
  std::vector<int64_t> order(static_cast<size_t>(num_documents));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  const CounterRandom random(seed, fmt::format("shuffle/{}", epoch));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i, i)]);
  return order;
}

void RequireLength(int64_t max_target_length) {
  Require(ExitCode::kUsage, max_target_length >= 1, "max_target_length is {}; at least 1 is wanted",
          max_target_length);
}

std::span<int32_t> Part(std::vector<int32_t>& v, int64_t begin, int64_t size) {
  return std::span(v).subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
}

}  // namespace

SequenceReader::SequenceReader(const Corpus& corpus, int64_t max_target_length, uint64_t seed, bool shuffle)
    : corpus_(corpus), length_(max_target_length), seed_(seed), shuffle_(shuffle) {
  RequireLength(max_target_length);
  CHECK(corpus.num_documents() > 0);
}

int64_t SequenceReader::DocumentAt(const ReaderPosition& position) {
  if (order_epoch_ != position.epoch) {
    order_ = EpochOrder(corpus_.num_documents(), seed_, position.epoch, shuffle_);
    order_epoch_ = position.epoch;
  }
  return order_[static_cast<size_t>(position.document)];
}

Batch SequenceReader::Next() {
  Batch batch;
  batch.tokens.assign(static_cast<size_t>(length_), 0);
  batch.targets.assign(static_cast<size_t>(length_), kIgnoreTarget);
  const int64_t epoch = position_.epoch;
  while (position_.epoch == epoch && batch.num_tokens < length_) {
    const int64_t document = DocumentAt(position_);
    const int64_t size = corpus_.num_tokens(document);
    const int64_t rest = size - position_.token;
    if (batch.num_tokens > 0 && rest > length_ - batch.num_tokens) break;  // it begins the next sequence
    const int64_t rows = std::min(rest, length_);
    const int64_t begin = batch.num_tokens;
    corpus_.ReadTokens(document, position_.token, Part(batch.tokens, begin, rows));
    // Shifted by one; the row of the document's last token is left without a target.
    const int64_t labels = std::min(rows, rest - 1);
    corpus_.ReadLabels(document, position_.token + 1, Part(batch.targets, begin, labels));
    batch.documents.push_back({begin, begin + rows});
    batch.num_tokens += rows;

    position_.token += rows;
    if (position_.token == size) {
      position_.token = 0;
      ++position_.document;
    }
    if (position_.document == corpus_.num_documents()) position_ = {epoch + 1, 0, 0};
  }
  batch.num_targets = length_ - std::count(batch.targets.begin(), batch.targets.end(), kIgnoreTarget);
  return batch;
}

void SequenceReader::Seek(const ReaderPosition& position) {
  Require(position.epoch >= 0 && position.document >= 0 && position.document < corpus_.num_documents(),
          "the data have no place (epoch {}, document {}): they have {} documents; the run to resume read "
          "other data",
          position.epoch, position.document, corpus_.num_documents());
  const int64_t document = DocumentAt(position);
  Require(position.token >= 0 && position.token < corpus_.num_tokens(document),
          "the data have no place (epoch {}, document {}, token {}): {} has {} tokens; the run to resume "
          "read other data",
          position.epoch, position.document, position.token, corpus_.DocumentName(document),
          corpus_.num_tokens(document));
  position_ = position;
}

int64_t SequencesPerEpoch(const Corpus& corpus, int64_t max_target_length, uint64_t seed, int64_t epoch,
                          bool shuffle) {
  RequireLength(max_target_length);
  int64_t sequences = 0, filled = 0;  // those that are closed, and rows of the open one
  for (const int64_t document : EpochOrder(corpus.num_documents(), seed, epoch, shuffle)) {
    const int64_t size = corpus.num_tokens(document);
    if (size <= max_target_length - filled) {
      filled += size;
      continue;
    }
    if (filled > 0) ++sequences;
    sequences += size / max_target_length;
    filled = size % max_target_length;
  }
  return filled > 0 ? sequences + 1 : sequences;
}

}  // namespace longspan
