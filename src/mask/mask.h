// A mask is data: for runs of query rows, the union of at most two intervals of key indices that they see.
// Everything is in global indices (64 bits) of the packed sequence; nothing here has the sequence's length.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longspan {

// Half-open range of global indices.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Sorted, disjoint, non-empty ranges; what lies between them is padding. See NormalizeDocuments.
using Documents = std::vector<Range>;

// Drops empty documents; throws Error unless the rest are sorted, disjoint and inside [0, length).
Documents NormalizeDocuments(std::span<const Range> documents, int64_t length);

// An end of an interval as a function of the row: a constant, or row + constant.
struct Bound {
  int64_t offset = 0;
  bool follows_row = false;
  int64_t At(int64_t row) const { return follows_row ? row + offset : offset; }
  friend bool operator==(const Bound&, const Bound&) = default;
};

// Rows of `rows` see the union of `intervals[0 … num_intervals)`: disjoint, in order, non-empty at every row.
struct RowRun {
  struct Interval {
    Bound begin, end;
    Range At(int64_t row) const { return {begin.At(row), end.At(row)}; }
    friend bool operator==(const Interval&, const Interval&) = default;
  };
  Range rows;
  int num_intervals = 0;
  std::array<Interval, 2> intervals;
  friend bool operator==(const RowRun&, const RowRun&) = default;
};

// What one row sees: two intervals, either of which may be empty ({0, 0}).
struct RowIntervals {
  std::array<Range, 2> intervals;
  bool Sees(int64_t key) const {
    return (intervals[0].begin <= key && key < intervals[0].end) ||
           (intervals[1].begin <= key && key < intervals[1].end);
  }
};

enum class TileClass { kEmpty, kPartial, kFull };

class Mask {
 public:
  Mask() = default;  // nobody sees anything
  // Runs are sorted and disjoint; rows in no run (padding) see nothing.
  explicit Mask(std::vector<RowRun> runs);

  std::span<const RowRun> runs() const { return runs_; }
  // The runs that touch `rows`, uncut.
  std::span<const RowRun> RunsIn(Range rows) const;
  RowIntervals Row(int64_t row) const;

  // Exact, closed-form, O(runs touched + log runs). Empty ranges are kEmpty.
  TileClass Classify(Range rows, Range keys) const;
  // Number of (row, key) pairs with row in `rows`, key in `keys`, where the row sees the key. Exact.
  int64_t CountPairs(Range rows, Range keys) const;
  // The same of lists of disjoint ranges, in any order: what the rows of one rank see of the keys of another.
  // O(runs and ranges that a bound passes through, and the logarithm of the others).
  int64_t CountPairs(std::span<const Range> rows, std::span<const Range> keys) const;
  int64_t CountPairs() const;  // of the whole mask

 private:
  std::vector<RowRun> runs_;
};

// A stretch of rows that positions and masks take as one: a document, its stem or one of its branches.
struct Segment {
  Range rows;
  Range stem;  // the rows that these follow: empty but for a branch
  int64_t PositionOf(int64_t row) const {
    return stem.size() + row - rows.begin;
  }  // from the document's start
};

// Branches are the ends of a document that has several: ranges one behind the other that fill it up from the
// first of them on. Each follows the stem, the rows before the first, as if it were the only one: it sees the
// stem and itself, and its positions go on from the stem's. So many answers to one long text cost one pass
// over it. In order; documents normalized, branches sorted. Throws Error for branches that aren't as said.
std::vector<Segment> SegmentsOf(std::span<const Range> documents, std::span<const Range> branches);

enum class MaskKind { kFull, kCausal, kSlidingWindow, kChunked, kPrefix, kSinkWindow };

// A named mask with its parameters; the documents come with each batch.
struct MaskSpec {
  MaskKind kind = MaskKind::kCausal;
  int64_t window = 0;  // kSlidingWindow, kSinkWindow: keys a row sees with itself, ≥ 1
  int64_t chunk = 0;   // kChunked: ≥ 1
  int64_t prefix = 0;  // kPrefix: first rows of each document that everyone in it sees, ≥ 0
  int64_t sinks = 0;   // kSinkWindow: first keys of each document always seen, ≥ 0
  friend bool operator==(const MaskSpec&, const MaskSpec&) = default;
};

// The one table of masks: name, and the function from documents to runs. Formulas: docs/parallel.md, "Masks".
struct MaskRow {
  MaskKind kind;
  std::string_view name;  // "full", "causal", "sliding_window", "chunked", "prefix", "sink_window"
  void (*append_runs)(const MaskSpec&, Range document, std::vector<RowRun>& runs);
  // Of a branch; null: this mask has none.
  void (*append_branch)(const MaskSpec&, const Segment& branch, std::vector<RowRun>& runs);
};
std::span<const MaskRow> MaskTable();

// Throws Error for a parameter out of range (window 0, …), and for branches under a mask that has none.
// Documents must be normalized.
Mask MakeMask(const MaskSpec& spec, std::span<const Range> documents, std::span<const Range> branches = {});

}  // namespace longspan
