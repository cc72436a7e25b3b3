#include "backend/cpu/attention_tiles.h"

#include <algorithm>
#include <limits>

#include "core/check.h"

namespace longspan::cpu {
namespace {

Range Hull(Range a, Range b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

Range Intersection(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

// Two ranges as a Reach: in order, joined where they meet.
Reach MakeReach(Range a, Range b) {
  if (a.empty()) return {{b, Range{}}};
  if (b.empty()) return {{a, Range{}}};
  if (b.begin < a.begin) std::swap(a, b);
  if (b.begin <= a.end) return {{Range{a.begin, std::max(a.end, b.end)}, Range{}}};
  return {{a, b}};
}

// The first n of 64 bits; n may be any number.
uint64_t FirstBits(int64_t n) { return n <= 0 ? 0 : n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

uint64_t BitsOf(Range indices, const KeyPanel& panel) {
  if (indices.empty()) return 0;
  return FirstBits(std::min<int64_t>(indices.end - panel.first, panel.count)) &
         ~FirstBits(indices.begin - panel.first);
}

}  // namespace

std::vector<PlacedSpan> SortSpans(std::span<const Range> spans) {
  std::vector<PlacedSpan> sorted;
  sorted.reserve(spans.size());
  int64_t row = 0;
  for (const Range& span : spans) {
    if (span.empty()) continue;
    sorted.push_back({span, row, 0});
    row += span.size();
  }
  std::ranges::sort(sorted, {}, [](const PlacedSpan& span) { return span.indices.begin; });

  std::vector<PlacedSpan> joined;
  int64_t before = 0;
  for (const PlacedSpan& span : sorted) {
    if (!joined.empty()) {
      PlacedSpan& last = joined.back();
      CHECK(last.indices.end <= span.indices.begin);
      if (last.indices.end == span.indices.begin && last.row + last.indices.size() == span.row) {
        last.indices.end = span.indices.end;
        before += span.indices.size();
        continue;
      }
    }
    joined.push_back({span.indices, span.row, before});
    before += span.indices.size();
  }
  return joined;
}

std::vector<KeyPanel> CutIntoPanels(std::span<const Range> key_spans) {
  std::vector<KeyPanel> panels;
  for (const PlacedSpan& span : SortSpans(key_spans)) {
    for (int64_t offset = 0; offset < span.indices.size(); offset += kPanelKeys) {
      const int64_t count = std::min<int64_t>(kPanelKeys, span.indices.size() - offset);
      panels.push_back({span.indices.begin + offset, span.row + offset, static_cast<int32_t>(count)});
    }
  }
  return panels;
}

int64_t Reach::CountBelow(int64_t i) const {
  int64_t count = 0;
  for (const Range& part : parts)
    count += std::clamp<int64_t>(i - part.begin, 0, std::max<int64_t>(part.size(), 0));
  return count;
}

Reach Reach::InBlocks(std::span<const int64_t> begins) const {
  const auto block_of = [&](int64_t panel) {
    return std::ranges::upper_bound(begins, panel) - begins.begin() - 1;
  };
  const auto blocks = [&](Range part) {
    return part.empty() ? Range{} : Range{block_of(part.begin), block_of(part.end - 1) + 1};
  };
  return MakeReach(blocks(parts[0]), blocks(parts[1]));
}

std::vector<int64_t> PlacesToCut(const Mask& mask) {
  const std::span<const RowRun> runs = mask.runs();
  // What a run's rows see lies between these. Ends of intervals are linear in the row.
  const auto seen = [](const RowRun& run) {
    Range hull;
    for (size_t n = 0; n < static_cast<size_t>(run.num_intervals); ++n)
      hull = Hull(hull, Hull(run.intervals[n].At(run.rows.begin), run.intervals[n].At(run.rows.end - 1)));
    return hull;
  };
  std::vector<int64_t> least(runs.size() + 1, std::numeric_limits<int64_t>::max());  // seen from a run on
  for (size_t i = runs.size(); i-- > 0;) {
    const Range keys = seen(runs[i]);
    least[i] = keys.empty() ? least[i + 1] : std::min(least[i + 1], keys.begin);
  }
  std::vector<int64_t> places;
  int64_t end = std::numeric_limits<int64_t>::min();  // of what has been seen
  for (size_t i = 0; i < runs.size(); ++i) {
    const int64_t place = runs[i].rows.begin;
    if (end <= place && place <= least[i]) places.push_back(place);
    const Range keys = seen(runs[i]);
    if (!keys.empty()) end = std::max(end, keys.end);
  }
  return places;
}

std::vector<int64_t> CutIntoBlocks(int64_t size, int64_t most, std::span<const int64_t> places) {
  std::vector<int64_t> begins;
  int64_t begin = 0;
  for (; size - begin > most;) {
    begins.push_back(begin);
    const auto after = std::ranges::upper_bound(places, begin + most);
    begin = after != places.begin() && after[-1] > begin + most / 2 ? after[-1] : begin + most;
  }
  if (begin < size) begins.push_back(begin);
  begins.push_back(size);
  return begins;
}

std::vector<int64_t> CutIntoBlocks(std::span<const KeyPanel> panels, int64_t most,
                                   std::span<const int64_t> indices) {
  std::vector<int64_t> places;
  for (size_t p = 0; p < panels.size(); ++p)
    if (std::ranges::binary_search(indices, panels[p].first)) places.push_back(static_cast<int64_t>(p));
  return CutIntoBlocks(std::ssize(panels), most, places);
}

QueryBlocks::QueryBlocks(const Mask& mask, std::span<const int64_t> places_to_cut,
                         std::span<const Range> query_spans, BlockSize block)
    : mask_(mask), spans_(SortSpans(query_spans)), strip_rows_(block.strip_rows) {
  const int num_strips = block.rows / block.strip_rows;
  CHECK(block.rows % block.strip_rows == 0 && block.rows <= kMostRows && num_strips <= kMostStrips);
  CHECK(num_strips * block.panels <= kMostTiles && block.rows * block.panels <= kMostTileRows);
  std::vector<int64_t> places;
  int64_t num_rows = 0;
  for (const PlacedSpan& span : spans_) {
    for (auto place = std::ranges::lower_bound(places_to_cut, span.indices.begin);
         place != places_to_cut.end() && *place < span.indices.end; ++place)
      places.push_back(num_rows + *place - span.indices.begin);
    num_rows += span.indices.size();
  }
  begins_ = CutIntoBlocks(num_rows, block.rows, places);
}

template <class F>
void QueryBlocks::ForPieces(int64_t block, const F& f) const {
  const int64_t begin = begins_[static_cast<size_t>(block)], end = begins_[static_cast<size_t>(block) + 1];
  auto span = std::ranges::upper_bound(spans_, begin, {}, &PlacedSpan::before) - 1;
  for (int64_t position = begin; position < end; ++span) {
    const int64_t offset = position - span->before;
    const int64_t n = std::min(end - position, span->indices.size() - offset);
    const int64_t first = span->indices.begin + offset;
    f(Range{first, first + n}, span->row + offset, position - begin);
    position += n;
  }
}

void QueryBlocks::Load(int64_t block, QueryRows& rows) const {
  rows.num_rows =
      static_cast<int>(begins_[static_cast<size_t>(block) + 1] - begins_[static_cast<size_t>(block)]);
  rows.strip_rows = strip_rows_;
  ForPieces(block, [&](Range indices, int64_t row, int64_t position) {
    for (int64_t i = 0; i < indices.size(); ++i) {
      rows.rows[static_cast<size_t>(position + i)] = row + i;
      rows.sees[static_cast<size_t>(position + i)] = {};
    }
    for (const RowRun& run : mask_.RunsIn(indices)) {
      const Range in_run = Intersection(indices, run.rows);
      for (int64_t index = in_run.begin; index < in_run.end; ++index)
        for (size_t n = 0; n < static_cast<size_t>(run.num_intervals); ++n)
          rows.sees[static_cast<size_t>(position + index - indices.begin)].intervals[n] =
              run.intervals[n].At(index);
    }
  });
  for (int strip = 0; strip < rows.num_strips(); ++strip) {
    QueryRows::StripView& view = rows.strips[static_cast<size_t>(strip)];
    const int begin = strip * strip_rows_, end = std::min(rows.num_rows, begin + strip_rows_);
    for (size_t n = 0; n < 2; ++n) {
      view.some[n] = view.all[n] = rows.sees[static_cast<size_t>(begin)].intervals[n];
      for (int r = begin + 1; r < end; ++r) {
        const Range& interval = rows.sees[static_cast<size_t>(r)].intervals[n];
        view.some[n] = Hull(view.some[n], interval);
        view.all[n] = Intersection(view.all[n], interval);
      }
    }
  }
}

Reach QueryBlocks::ReachOf(int64_t block, std::span<const KeyPanel> panels) const {
  std::array<Range, 2> hull;
  ForPieces(block, [&](Range indices, int64_t, int64_t) {
    for (const RowRun& run : mask_.RunsIn(indices)) {
      const Range in_run = Intersection(indices, run.rows);
      // Interval ends are linear in the row: those of the first and the last row enclose all.
      for (size_t n = 0; n < static_cast<size_t>(run.num_intervals); ++n)
        hull[n] = Hull(hull[n], Hull(run.intervals[n].At(in_run.begin), run.intervals[n].At(in_run.end - 1)));
    }
  });
  const auto overlapping = [&](Range indices) {
    if (indices.empty()) return Range{};
    const auto first = std::ranges::partition_point(
        panels, [&](const KeyPanel& panel) { return panel.first + panel.count <= indices.begin; });
    const auto last = std::partition_point(first, panels.end(),
                                           [&](const KeyPanel& panel) { return panel.first < indices.end; });
    return Range{first - panels.begin(), last - panels.begin()};
  };
  return MakeReach(overlapping(hull[0]), overlapping(hull[1]));
}

bool TileMasks::Classify(const QueryRows& rows, std::span<const KeyPanel> panels) {
  DCHECK(static_cast<size_t>(rows.num_strips()) * panels.size() <= kMostTiles);
  uint64_t anything = 0;
  size_t tile = 0;
  for (int strip = 0; strip < rows.num_strips(); ++strip) {
    const QueryRows::StripView& view = rows.strips[static_cast<size_t>(strip)];
    for (const KeyPanel& panel : panels) {
      const Range keys = {panel.first, panel.first + panel.count};
      const auto overlaps = [&](Range r) { return !r.empty() && r.begin < keys.end && keys.begin < r.end; };
      const auto holds = [&](Range r) { return r.begin <= keys.begin && keys.end <= r.end; };
      TileMask& mask = tiles_[tile];
      if (!overlaps(view.some[0]) && !overlaps(view.some[1])) {
        mask = {};
      } else if (panel.count == kPanelKeys && (holds(view.all[0]) || holds(view.all[1]))) {
        mask = {~uint64_t{0}, nullptr};
      } else {
        uint64_t* const row_bits = &rows_[tile * static_cast<size_t>(rows.strip_rows)];
        mask = {0, row_bits};
        for (int r = 0; r < rows.strip_rows; ++r) {
          const int row = std::min(strip * rows.strip_rows + r, rows.num_rows - 1);
          const RowIntervals& sees = rows.sees[static_cast<size_t>(row)];
          const uint64_t bits = BitsOf(sees.intervals[0], panel) | BitsOf(sees.intervals[1], panel);
          row_bits[r] = bits;
          mask.any |= bits;
        }
      }
      anything |= mask.any;
      ++tile;
    }
  }
  return anything != 0;
}

}  // namespace longspan::cpu
