#include "backend/pair_counts.h"

#include <algorithm>

namespace longspan {
namespace {

size_t HashOf(size_t mask, std::span<const Range> rows, std::span<const Range> keys) {
  size_t hash = mask;
  const auto mix = [&](size_t value) { hash = (hash ^ value) * 0x100000001b3u + (hash >> 29); };
  for (const std::span<const Range> spans : {rows, keys}) {
    mix(spans.size());
    for (const Range& span : spans) {
      mix(static_cast<size_t>(span.begin));
      mix(static_cast<size_t>(span.end));
    }
  }
  return hash;
}

}  // namespace

int64_t PairCounts::Count(const Mask& mask, std::span<const Range> rows, std::span<const Range> keys) {
  const size_t index = IndexOf(mask), hash = HashOf(index, rows, keys);
  const auto [first, last] = counts_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Call& call = it->second;
    if (call.mask == index && std::ranges::equal(call.rows, rows) && std::ranges::equal(call.keys, keys))
      return call.pairs;
  }
  const int64_t pairs = mask.CountPairs(rows, keys);
  counts_.emplace(hash, Call{index, {rows.begin(), rows.end()}, {keys.begin(), keys.end()}, pairs});
  return pairs;
}

size_t PairCounts::IndexOf(const Mask& mask) {
  for (size_t i = 0; i < masks_.size(); ++i)
    if (std::ranges::equal(masks_[i].runs(), mask.runs())) return i;
  masks_.push_back(mask);
  return masks_.size() - 1;
}

}  // namespace longspan
