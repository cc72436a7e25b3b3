#include "parallel/key_mean.h"

#include <algorithm>

namespace longspan {
namespace {

// Of rows that hold `spans`, those that belong to a document.
std::vector<Range> RealRows(const Mask& mask, std::span<const Range> spans) {
  std::vector<Range> rows;
  int64_t row = 0;  // of span.begin
  for (const Range& span : spans) {
    for (const RowRun& run : mask.RunsIn(span))
      AppendSpan({row + std::max(run.rows.begin, span.begin) - span.begin,
                  row + std::min(run.rows.end, span.end) - span.begin},
                 rows);
    row += span.size();
  }
  return rows;
}

}  // namespace

Tensor KeyMean(Backend& backend, Comm& comm, const SequenceShards& shards, Tensor k) {
  if (k.dtype() != DType::kBFloat16 || shards.soft_cap != 0 || !shards.sinks.IsNull()) return {};
  const Tensor mean = backend.arena().Allocate("key_mean", DType::kFloat32, {k.dim(1), k.dim(2)});
  int64_t num_rows = 0;
  for (const RowRun& run : shards.mask->runs()) num_rows += run.rows.size();
  backend.MeanOfRows(k, RealRows(*shards.mask, shards.spans[static_cast<size_t>(comm.rank())]), num_rows,
                     mean);
  if (comm.size() > 1) comm.AllReduceSum(mean);
  return mean;
}

}  // namespace longspan
