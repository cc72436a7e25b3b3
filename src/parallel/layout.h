// Layout: which global indices each context rank holds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mask/mask.h"

namespace longspan {

enum class LayoutKind { kContiguous, kZigzag, kStriped };
std::string_view Name(LayoutKind kind);             // "contiguous", "zigzag", "striped"
LayoutKind ParseLayoutKind(std::string_view name);  // throws Error(kUsage) naming the nearest

// Appends `span`, as a longer last one where it goes on from there.
void AppendSpan(Range span, std::vector<Range>& spans);
// The spans of several ranks one after the other, merged where consecutive.
std::vector<Range> JoinSpans(std::span<const std::vector<Range>> ranks);

// All P = R·U ranks hold the same t = ⌈T/m⌉·m/P rows, m = P (contiguous), 2·R·U (zigzag), P·stripe (striped;
// stripe is halved until no rank holds only padding, and one rank's is no longer than the sequence). Indices
// from T on are padding.
// - contiguous: rank p holds [p·t, (p+1)·t).
// - zigzag: 2R chunks; ring member r holds chunks r and 2R−1−r, joined and split into U contiguous parts.
// - striped: stripes dealt in turn; rank p holds stripes p, p+P, p+2P, …
class Layout {
 public:
  Layout(LayoutKind kind, int64_t length, int ring, int ulysses, int64_t stripe_length = 64);

  LayoutKind kind() const { return kind_; }
  int64_t length() const { return length_; }                // T
  int64_t rows_per_rank() const { return rows_per_rank_; }  // t
  int64_t stripe_length() const { return stripe_; }
  int num_ranks() const { return static_cast<int>(spans_.size()); }
  // Of context rank p = r·U + u: its rows in the order it holds them, merged where consecutive; sizes sum to
  // t.
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
