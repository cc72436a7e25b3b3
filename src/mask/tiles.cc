// Tile classes and pair counts, from the runs alone.
//
// An interval [b, e) with b ≤ e holds, of the keys in [k0, k1), those below e less those below b. Summed over
// rows, each of the two is the sum of a clamped line, which has a closed form; so nothing here loops over
// rows or keys.
#include <algorithm>

#include "mask/mask.h"

namespace longspan {
namespace {

// Σ over `rows` of the number of `keys` below bound.At(row).
int64_t CountBelow(const Bound& bound, Range rows, Range keys) {
  if (!bound.follows_row) return rows.size() * (std::clamp(bound.offset, keys.begin, keys.end) - keys.begin);
  // Rows before `some` have none below, rows from `all` on have all; in between the number grows by one a
  // row.
  const int64_t some = std::clamp(keys.begin - bound.offset, rows.begin, rows.end);
  const int64_t all = std::clamp(keys.end - bound.offset, rows.begin, rows.end);
  const int64_t first = bound.At(some) - keys.begin, last = bound.At(all - 1) - keys.begin;
  return (all - some) * (first + last) / 2 + (rows.end - all) * keys.size();
}

// Pairs of one run; `rows` not empty and inside the run.
int64_t CountInRun(const RowRun& run, Range rows, Range keys) {
  int64_t pairs = 0;
  for (size_t n = 0; n < static_cast<size_t>(run.num_intervals); ++n)
    pairs += CountBelow(run.intervals[n].end, rows, keys) - CountBelow(run.intervals[n].begin, rows, keys);
  return pairs;
}

// Those that aren't empty, in order, with the size of all before each.
struct SortedRanges {
  explicit SortedRanges(std::span<const Range> in)
      : ranges(in.begin(), in.end()), size_before(in.size() + 1) {
    std::erase_if(ranges, [](const Range& range) { return range.empty(); });
    std::ranges::sort(ranges, {}, &Range::begin);
    for (size_t i = 0; i < ranges.size(); ++i) size_before[i + 1] = size_before[i] + ranges[i].size();
  }
  std::vector<Range> ranges;
  std::vector<int64_t> size_before;
};

// Σ over `rows`, not empty, of the number of keys below bound.At(row).
int64_t CountBelow(const Bound& bound, Range rows, const SortedRanges& keys) {
  const int64_t lowest = bound.At(rows.begin), highest = bound.At(rows.end - 1);
  auto range = std::ranges::partition_point(keys.ranges, [&](const Range& k) { return k.end <= lowest; });
  int64_t pairs = rows.size() * keys.size_before[static_cast<size_t>(range - keys.ranges.begin())];
  for (; range != keys.ranges.end() && range->begin < highest; ++range)
    pairs += CountBelow(bound, rows, *range);
  return pairs;
}

Range Intersect(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

}  // namespace

TileClass Mask::Classify(Range rows, Range keys) const {
  if (keys.empty()) return TileClass::kEmpty;
  bool any = false, all = true;
  int64_t rows_in_runs = 0;
  for (const RowRun& run : RunsIn(rows)) {
    const Range part = Intersect(run.rows, rows);
    const int64_t pairs = CountInRun(run, part, keys);
    any |= pairs > 0;
    all &= pairs == part.size() * keys.size();
    if (any && !all) return TileClass::kPartial;
    rows_in_runs += part.size();
  }
  if (!any) return TileClass::kEmpty;
  return rows_in_runs == rows.size() ? TileClass::kFull : TileClass::kPartial;
}

int64_t Mask::CountPairs(Range rows, Range keys) const {
  if (keys.empty()) return 0;
  int64_t pairs = 0;
  for (const RowRun& run : RunsIn(rows)) pairs += CountInRun(run, Intersect(run.rows, rows), keys);
  return pairs;
}

int64_t Mask::CountPairs(std::span<const Range> rows, std::span<const Range> keys) const {
  const SortedRanges sorted(keys);
  int64_t pairs = 0;
  for (const Range& range : rows) {
    for (const RowRun& run : RunsIn(range)) {
      const Range part = Intersect(run.rows, range);
      for (size_t n = 0; n < static_cast<size_t>(run.num_intervals); ++n)
        pairs +=
            CountBelow(run.intervals[n].end, part, sorted) - CountBelow(run.intervals[n].begin, part, sorted);
    }
  }
  return pairs;
}

int64_t Mask::CountPairs() const {
  int64_t pairs = 0;
  for (const RowRun& run : runs_) {
    for (size_t n = 0; n < static_cast<size_t>(run.num_intervals); ++n) {
      // The length is linear in the row: the mean of the first and the last, times the rows.
      const RowRun::Interval& interval = run.intervals[n];
      pairs +=
          run.rows.size() * (interval.At(run.rows.begin).size() + interval.At(run.rows.end - 1).size()) / 2;
    }
  }
  return pairs;
}

}  // namespace longspan
