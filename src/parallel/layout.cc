#include "parallel/layout.h"

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/names.h"

namespace longspan {
namespace {

constexpr std::array<std::string_view, 3> kLayoutNames = {"contiguous", "zigzag", "striped"};

int64_t RoundUp(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

// The largest of stripe, stripe/2, … for which the last rank's first stripe begins inside the sequence; one
// rank has one stripe, no longer than the sequence.
int64_t FitStripe(int64_t stripe, int64_t length, int64_t ranks) {
  if (ranks == 1) return std::min(stripe, length);
  while (stripe > 1 && stripe > (length - 1) / (ranks - 1)) stripe /= 2;
  return stripe;
}

std::vector<Range> ZigzagSpans(int64_t chunk, int ring, int ulysses, int rank) {
  const int64_t r = rank / ulysses, u = rank % ulysses;
  const int64_t rows = 2 * chunk / ulysses;  // of the two chunks joined, mine are [u·rows, (u+1)·rows)
  std::vector<Range> spans;
  int64_t joined_begin = 0;
  for (const int64_t n : {r, 2 * ring - 1 - r}) {
    const int64_t begin = std::max(u * rows - joined_begin, int64_t{0});
    const int64_t end = std::min((u + 1) * rows - joined_begin, chunk);
    AppendSpan({n * chunk + begin, n * chunk + end}, spans);
    joined_begin += chunk;
  }
  return spans;
}

}  // namespace

std::string_view Name(LayoutKind kind) { return kLayoutNames[static_cast<size_t>(kind)]; }

LayoutKind ParseLayoutKind(std::string_view name) {
  const auto found = std::ranges::find(kLayoutNames, name);
  Require(ExitCode::kUsage, found != kLayoutNames.end(), "there is no layout '{}'{}", name,
          Suggestion(name, kLayoutNames));
  return static_cast<LayoutKind>(found - kLayoutNames.begin());
}

void AppendSpan(Range span, std::vector<Range>& spans) {
  if (span.empty()) return;
  if (!spans.empty() && spans.back().end == span.begin) {
    spans.back().end = span.end;
  } else {
    spans.push_back(span);
  }
}

std::vector<Range> JoinSpans(std::span<const std::vector<Range>> ranks) {
  std::vector<Range> joined;
  for (const std::vector<Range>& spans : ranks)
    for (const Range& span : spans) AppendSpan(span, joined);
  return joined;
}

Layout::Layout(LayoutKind kind, int64_t length, int ring, int ulysses, int64_t stripe_length)
    : kind_(kind), length_(length) {
  CHECK(length > 0 && ring > 0 && ulysses > 0 && stripe_length > 0);
  const int ranks = ring * ulysses;
  stripe_ = FitStripe(stripe_length, length, ranks);
  const int64_t multiple = kind == LayoutKind::kContiguous ? ranks
                           : kind == LayoutKind::kZigzag   ? 2 * ranks
                                                           : ranks * stripe_;
  rows_per_rank_ = RoundUp(length, multiple) / ranks;
  spans_.resize(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Range>& spans = spans_[static_cast<size_t>(rank)];
    switch (kind) {
      case LayoutKind::kContiguous:
        AppendSpan({rank * rows_per_rank_, (rank + 1) * rows_per_rank_}, spans);
        break;
      case LayoutKind::kZigzag:
        spans = ZigzagSpans(rows_per_rank_ * ulysses / 2, ring, ulysses, rank);
        break;
      case LayoutKind::kStriped:
        for (int64_t begin = rank * stripe_; begin < ranks * rows_per_rank_; begin += ranks * stripe_)
          AppendSpan({begin, begin + stripe_}, spans);
        break;
    }
  }
}

}  // namespace longspan
