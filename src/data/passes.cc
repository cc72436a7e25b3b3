#include "data/passes.h"

#include <algorithm>

#include "core/check.h"

namespace longspan {
namespace {

// Those inside of `rows`, counted from its begin. Both are sorted.
std::vector<Range> Inside(std::span<const Range> ranges, Range rows) {
  std::vector<Range> inside;
  for (auto it = std::ranges::lower_bound(ranges, rows.begin, {}, &Range::begin);
       it != ranges.end() && it->end <= rows.end; ++it)
    inside.push_back({it->begin - rows.begin, it->end - rows.begin});
  return inside;
}

// `rows` of a sequence's array, then `fill` up to `length`.
std::vector<int32_t> Take(const std::vector<int32_t>& whole, Range rows, int64_t length, int32_t fill) {
  std::vector<int32_t> part;
  if (!whole.empty()) part.assign(whole.begin() + rows.begin, whole.begin() + rows.end);
  part.resize(static_cast<size_t>(length), fill);
  return part;
}

}  // namespace

std::vector<Range> PassesOf(std::span<const Range> documents, int64_t length) {
  std::vector<Range> passes;
  for (const Range& document : documents) {
    CHECK(document.size() <= length);
    if (passes.empty() || document.end - passes.back().begin > length)
      passes.push_back(document);
    else
      passes.back().end = document.end;
  }
  return passes;
}

Batch TakePass(const Batch& sequence, Range rows, int64_t length) {
  CHECK(rows.size() <= length);
  Batch pass;
  pass.tokens = Take(sequence.tokens, rows, length, 0);
  pass.targets = Take(sequence.targets, rows, length, kIgnoreTarget);
  pass.documents = Inside(sequence.documents, rows);
  pass.branches = Inside(sequence.branches, rows);
  for (const Range& document : pass.documents) pass.num_tokens += document.size();
  pass.num_targets = length - std::ranges::count(pass.targets, kIgnoreTarget);
  return pass;
}

}  // namespace longspan
