#include "data/mixture.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace longspan {
namespace {

constexpr int64_t kMostSequences = int64_t{1} << 50;  // of all sources; doubles count so far

std::vector<double> WeightsOf(std::span<const DataSource> sources) {
  std::vector<double> weights;
  for (const DataSource& source : sources) weights.push_back(source.weight);
  return weights;
}

}  // namespace

Dealer::Dealer(std::vector<double> weights) : shares_(std::move(weights)), counts_(shares_.size(), 0) {
  const double sum = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  for (double& share : shares_) {
    CHECK(share > 0);
    share /= sum;
  }
}

size_t Dealer::Next() {
  const auto n = static_cast<double>(std::accumulate(counts_.begin(), counts_.end(), int64_t{0}));
  size_t next = shares_.size();
  double earliest = 0;
  for (size_t i = 0; i < shares_.size(); ++i) {
    const auto count = static_cast<double>(counts_[i]);
    if (count >= shares_[i] * (n + 1)) continue;  // it would be ahead by one or more
    const double deadline = std::ceil((count + 1) / shares_[i]);
    if (next < shares_.size() && deadline >= earliest) continue;
    next = i;
    earliest = deadline;
  }
  CHECK(next < shares_.size());  // shares · (n + 1) sum to n + 1, counts to n
  ++counts_[next];
  return next;
}

MixtureReader::MixtureReader(std::span<const DataSource> sources, int64_t max_target_length, uint64_t seed,
                             bool shuffle, Packing packing)
    : sources_(sources), dealer_(WeightsOf(sources)) {
  for (const DataSource& source : sources)
    readers_.emplace_back(*source.corpus, max_target_length, seed, shuffle, packing);
}

MixtureReader::Plan MixtureReader::NextPlan() {
  const size_t source = dealer_.Next();
  return {source, readers_[source].NextPieces()};
}

std::vector<SourcePosition> MixtureReader::positions() const {
  std::vector<SourcePosition> positions;
  for (size_t i = 0; i < sources_.size(); ++i)
    positions.push_back({sources_[i].path, sources_[i].weight, dealer_.counts()[i], readers_[i].position()});
  return positions;
}

void MixtureReader::Seek(std::span<const SourcePosition> positions) {
  if (positions.empty()) return;  // of a checkpoint that no run wrote: from the beginning
  const bool alone = sources_.size() == 1 && positions.size() == 1;
  bool same_mixture = sources_.size() == positions.size();
  std::vector<int64_t> counts;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto saved = std::find_if(positions.begin(), positions.end(), [&](const SourcePosition& p) {
      return alone || p.path == sources_[i].path;
    });
    if (saved == positions.end()) {
      same_mixture = false;
      continue;
    }
    same_mixture = same_mixture && saved->weight == sources_[i].weight;
    counts.push_back(saved->num_sequences);
    Require(saved->num_sequences >= 0 && saved->num_sequences <= kMostSequences / std::ssize(sources_),
            "{}: no run has read {} sequences of it", saved->path, saved->num_sequences);
    try {
      readers_[i].Seek(saved->reader);
    } catch (const Error& e) {
      throw Error(fmt::format("{}: {}", sources_[i].path, e.what()), e.code());
    }
  }
  std::vector<std::string_view> saved_paths;
  for (const SourcePosition& position : positions) saved_paths.push_back(position.path);
  Require(!counts.empty(),
          "the run to resume read {}; data_path has none of them, so nothing says where to go on",
          fmt::join(saved_paths, ", "));
  if (same_mixture) dealer_.set_counts(std::move(counts));
}

}  // namespace longspan
