// Layout: which global indices each context rank holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mask/mask.h"

namespace longspan {

enum class LayoutKind { kContiguous, kZigzag, kStriped };
std::string_view Name(LayoutKind kind);                 // "contiguous", "zigzag", "striped"
LayoutKind ParseLayoutKind(std::string_view name);      // throws Error(kUsage) naming the nearest

// All P = R·U ranks hold the same t = ⌈T/m⌉·m/P rows, m = P (contiguous), 2·R·U (zigzag), P·stripe (striped;
// stripe is halved until no rank holds only padding). Indices from T on are padding.
class Layout {
 public:
  Layout(LayoutKind kind, int64_t length, int ring, int ulysses, int64_t stripe_length = 64);

  LayoutKind kind() const { return kind_; }
  int64_t length() const { return length_; }           // T
  int64_t rows_per_rank() const { return rows_per_rank_; }  // t
  int64_t stripe_length() const { return stripe_; }
  int num_ranks() const { return static_cast<int>(spans_.size()); }
  // Of context rank p = r·U + u: its rows in the order it holds them, merged where consecutive; sizes sum to t.
  const std::vector<Range>& spans(int rank) const { return spans_[static_cast<size_t>(rank)]; }

 private:
  LayoutKind kind_;
  int64_t length_, rows_per_rank_, stripe_;
  std::vector<std::vector<Range>> spans_;
};

// Copies the elements of a (T) array that `spans` name, in their order; what lies past T becomes `fill`.
template <class T>
std::vector<T> TakeShard(const std::vector<T>& whole, const std::vector<Range>& spans, T fill) {
  std::vector<T> shard;
  for (const Range& span : spans)
    for (int64_t i = span.begin; i < span.end; ++i)
      shard.push_back(i < static_cast<int64_t>(whole.size()) ? whole[static_cast<size_t>(i)] : fill);
  return shard;
}

}  // namespace longspan
