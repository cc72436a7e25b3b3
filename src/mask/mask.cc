#include "mask/mask.h"

#include <algorithm>

#include "core/check.h"

namespace longspan {
namespace {

Bound Constant(int64_t index) { return {index, false}; }
Bound RowPlus(int64_t offset) { return {offset, true}; }

void AppendRun(Range rows, std::initializer_list<RowRun::Interval> intervals, std::vector<RowRun>& runs) {
  if (rows.empty()) return;
  RowRun run{rows, static_cast<int>(intervals.size()), {}};
  std::copy(intervals.begin(), intervals.end(), run.intervals.begin());
  runs.push_back(run);
}

// Row i of document [doc, end) sees [doc, end).
void AppendFull(const MaskSpec&, Range document, std::vector<RowRun>& runs) {
  AppendRun(document, {{Constant(document.begin), Constant(document.end)}}, runs);
}

// [doc, i+1)
void AppendCausal(const MaskSpec&, Range document, std::vector<RowRun>& runs) {
  AppendRun(document, {{Constant(document.begin), RowPlus(1)}}, runs);
}

// [doc, min(doc+s, i+1)) ∪ [max(doc+s, i−W+1), i+1): causal until the window has left the sink tokens.
void AppendSinkWindow(const MaskSpec& spec, Range document, std::vector<RowRun>& runs) {
  const int64_t sinks_end = document.begin + std::min(spec.sinks, document.size());
  const int64_t detached = sinks_end + std::min(spec.window, document.end - sinks_end);
  AppendCausal(spec, {document.begin, detached}, runs);
  const RowRun::Interval window = {RowPlus(1 - spec.window), RowPlus(1)};
  if (spec.sinks > 0) {
    AppendRun({detached, document.end}, {{Constant(document.begin), Constant(sinks_end)}, window}, runs);
  } else {
    AppendRun({detached, document.end}, {window}, runs);
  }
}

// [max(doc, i−W+1), i+1)
void AppendSlidingWindow(const MaskSpec& spec, Range document, std::vector<RowRun>& runs) {
  AppendSinkWindow({.window = spec.window, .sinks = 0}, document, runs);
}

// [doc + ⌊(i−doc)/c⌋·c, i+1): causal within each chunk.
void AppendChunked(const MaskSpec& spec, Range document, std::vector<RowRun>& runs) {
  const int64_t chunk = std::min(spec.chunk, document.size());
  for (int64_t begin = document.begin; begin < document.end; begin += chunk)
    AppendCausal(spec, {begin, std::min(begin + chunk, document.end)}, runs);
}

// [doc, min(end, max(i+1, doc+p)))
void AppendPrefix(const MaskSpec& spec, Range document, std::vector<RowRun>& runs) {
  const int64_t prefix_end = document.begin + std::min(spec.prefix, document.size());
  const Bound begin = Constant(document.begin);
  AppendRun({document.begin, prefix_end}, {{begin, Constant(prefix_end)}}, runs);
  AppendRun({prefix_end, document.end}, {{begin, RowPlus(1)}}, runs);
}

// [stem, stem's end) ∪ [branch, i+1)
void AppendCausalBranch(const MaskSpec&, const Segment& branch, std::vector<RowRun>& runs) {
  AppendRun(
      branch.rows,
      {{Constant(branch.stem.begin), Constant(branch.stem.end)}, {Constant(branch.rows.begin), RowPlus(1)}},
      runs);
}

// The last W positions: while they reach into the stem, its end from some row on and [branch, i+1); then
// [i−W+1, i+1).
void AppendSlidingWindowBranch(const MaskSpec& spec, const Segment& branch, std::vector<RowRun>& runs) {
  const Range stem = branch.stem, rows = branch.rows;
  const int64_t window = std::min(spec.window, stem.size() + rows.size());  // a longer one sees no more
  // From row `moving` on the window leaves the stem's beginning, from `detached` on all of the stem.
  const int64_t moving = std::clamp(rows.begin + window - stem.size(), rows.begin, rows.end);
  const int64_t detached = std::min(rows.begin + window - 1, rows.end);
  AppendCausalBranch(spec, {{rows.begin, moving}, stem}, runs);
  AppendRun(
      {moving, detached},
      {{RowPlus(stem.end - rows.begin - window + 1), Constant(stem.end)}, {Constant(rows.begin), RowPlus(1)}},
      runs);
  AppendRun({detached, rows.end}, {{RowPlus(1 - window), RowPlus(1)}}, runs);
}

constexpr MaskRow kMasks[] = {
    {MaskKind::kFull, "full", AppendFull, nullptr},
    {MaskKind::kCausal, "causal", AppendCausal, AppendCausalBranch},
    {MaskKind::kSlidingWindow, "sliding_window", AppendSlidingWindow, AppendSlidingWindowBranch},
    {MaskKind::kChunked, "chunked", AppendChunked, nullptr},
    {MaskKind::kPrefix, "prefix", AppendPrefix, nullptr},
    {MaskKind::kSinkWindow, "sink_window", AppendSinkWindow, nullptr},
};

void CheckParameters(const MaskSpec& spec) {
  const auto at_least = [](std::string_view name, int64_t got, int64_t least) {
    Require(ExitCode::kUsage, got >= least, "the mask's {} is {}; it must be at least {}", name, got, least);
  };
  switch (spec.kind) {
    case MaskKind::kFull:
    case MaskKind::kCausal:
      break;
    case MaskKind::kSlidingWindow:
      at_least("window (keys a row sees, itself included)", spec.window, 1);
      break;
    case MaskKind::kChunked:
      at_least("chunk", spec.chunk, 1);
      break;
    case MaskKind::kPrefix:
      at_least("prefix", spec.prefix, 0);
      break;
    case MaskKind::kSinkWindow:
      at_least("window (keys a row sees, itself included)", spec.window, 1);
      at_least("number of sink tokens", spec.sinks, 0);
      break;
  }
}

// An interval's length is linear in the row, and so is the gap between two: what holds at both ends of a run
// holds inside.
bool IsWellFormed(const RowRun& run) {
  if (run.rows.empty() || run.num_intervals < 1 || run.num_intervals > 2) return false;
  for (const int64_t row : {run.rows.begin, run.rows.end - 1}) {
    for (int n = 0; n < run.num_intervals; ++n)
      if (run.intervals[static_cast<size_t>(n)].At(row).empty()) return false;
    if (run.num_intervals == 2 && run.intervals[0].end.At(row) > run.intervals[1].begin.At(row)) return false;
  }
  return true;
}

}  // namespace

Documents NormalizeDocuments(std::span<const Range> documents, int64_t length) {
  Documents normalized;
  int64_t free_from = 0;
  for (const Range& document : documents) {
    Require(document.begin <= document.end, "document [{}, {}) ends before it begins", document.begin,
            document.end);
    if (document.empty()) continue;
    Require(document.begin >= free_from,
            "document [{}, {}) begins before {}, where it may: documents must be sorted and disjoint",
            document.begin, document.end, free_from);
    Require(document.end <= length, "document [{}, {}) ends past the sequence of {} tokens", document.begin,
            document.end, length);
    normalized.push_back(document);
    free_from = document.end;
  }
  return normalized;
}

std::span<const MaskRow> MaskTable() { return kMasks; }

std::vector<Segment> SegmentsOf(std::span<const Range> documents, std::span<const Range> branches) {
  std::vector<Segment> segments;
  auto branch = branches.begin();
  for (const Range& document : documents) {
    if (branch == branches.end() || branch->begin >= document.end) {
      segments.push_back({document, {}});
      continue;
    }
    const Range stem = {document.begin, branch->begin};
    Require(!stem.empty(), "branch [{}, {}) does not follow a stem of document [{}, {})", branch->begin,
            branch->end, document.begin, document.end);
    segments.push_back({stem, {}});
    while (segments.back().rows.end < document.end) {
      Require(
          branch != branches.end() && branch->begin == segments.back().rows.end && !branch->empty() &&
              branch->end <= document.end,
          "the branches of document [{}, {}) do not fill it: one must begin at {} and end in the document",
          document.begin, document.end, segments.back().rows.end);
      segments.push_back({*branch++, stem});
    }
  }
  if (branch != branches.end())
    throw Error(fmt::format("branch [{}, {}) lies in no document", branch->begin, branch->end));
  return segments;
}

Mask MakeMask(const MaskSpec& spec, std::span<const Range> documents, std::span<const Range> branches) {
  CheckParameters(spec);
  const auto row = std::ranges::find(kMasks, spec.kind, &MaskRow::kind);
  CHECK(row != std::end(kMasks));
  std::vector<RowRun> runs;
  Require(
      ExitCode::kUsage, branches.empty() || row->append_branch != nullptr,
      "several answers to one text cannot be masked with attention_mask={}; take causal or sliding_window",
      row->name);
  for (const Segment& segment : SegmentsOf(documents, branches)) {
    CHECK(!segment.rows.empty());
    if (segment.stem.empty())
      row->append_runs(spec, segment.rows, runs);
    else
      row->append_branch(spec, segment, runs);
  }
  return Mask(std::move(runs));
}

Mask::Mask(std::vector<RowRun> runs) : runs_(std::move(runs)) {
  for (size_t n = 0; n < runs_.size(); ++n) {
    CHECK(IsWellFormed(runs_[n]));
    CHECK(n == 0 || runs_[n - 1].rows.end <= runs_[n].rows.begin);
  }
}

std::span<const RowRun> Mask::RunsIn(Range rows) const {
  if (rows.empty()) return {};
  const auto first =
      std::ranges::partition_point(runs_, [&](const RowRun& run) { return run.rows.end <= rows.begin; });
  const auto last =
      std::partition_point(first, runs_.end(), [&](const RowRun& run) { return run.rows.begin < rows.end; });
  return {first, last};
}

RowIntervals Mask::Row(int64_t row) const {
  RowIntervals seen;
  for (const RowRun& run : RunsIn({row, row + 1}))
    for (size_t n = 0; n < static_cast<size_t>(run.num_intervals); ++n)
      seen.intervals[n] = run.intervals[n].At(row);
  return seen;
}

}  // namespace longspan
