#include "model/sequence.h"

#include <algorithm>

#include "core/check.h"
#include "core/target.h"

namespace longspan {
namespace {

std::vector<std::vector<Range>> SpansOf(const Layout& layout) {
  std::vector<std::vector<Range>> spans;
  for (int rank = 0; rank < layout.num_ranks(); ++rank) spans.push_back(layout.spans(rank));
  return spans;
}

Buffer RowsOf(DType dtype, const Layout& layout, bool measure) {
  const int64_t rows = layout.rows_per_rank();
  return measure ? Buffer::Measured(dtype, {rows}) : Buffer(dtype, {rows});
}

template <class T>
void CopyTo(const std::vector<T>& values, Tensor tensor) {
  CHECK(static_cast<int64_t>(values.size()) == tensor.num_elements());
  std::copy(values.begin(), values.end(), tensor.data<T>());
}

}  // namespace

Shard TakeShard(const Batch& batch, const Layout& layout, int context_rank) {
  const std::vector<Range>& spans = layout.spans(context_rank);
  Shard shard{.tokens = TakeShard(batch.tokens, spans, int32_t{0}),
              .targets = TakeShard(batch.targets, spans, kIgnoreTarget),
              .positions = {}};
  shard.positions.reserve(shard.tokens.size());
  const std::vector<Segment> segments = SegmentsOf(batch.documents, batch.branches);
  for (const Range& span : spans) {
    // The first segment that ends behind the span's first row.
    auto segment =
        std::ranges::partition_point(segments, [&](const Segment& s) { return s.rows.end <= span.begin; });
    for (int64_t i = span.begin; i < span.end; ++i) {
      if (segment != segments.end() && segment->rows.end <= i) ++segment;
      const bool inside = segment != segments.end() && segment->rows.begin <= i;
      shard.positions.push_back(inside ? segment->PositionOf(i) : 0);
    }
  }
  return shard;
}

std::vector<int32_t> KvHeads(const ModelConfig& config) {
  const int64_t group = config.num_attention_heads / config.num_key_value_heads;
  std::vector<int32_t> kv_of;
  for (int64_t head = 0; head < config.num_attention_heads; ++head)
    kv_of.push_back(static_cast<int32_t>(head / group));
  return kv_of;
}

MaskSpec MaskOf(const LayerKind& kind, const MaskSpec& mask) {
  if (kind.sliding_window == 0) return mask;
  CHECK(mask.kind == MaskKind::kCausal);
  return {.kind = MaskKind::kSlidingWindow, .window = kind.sliding_window};
}

SequenceLoader::SequenceLoader(const ModelConfig& config, const ModelOptions& options, const Layout& layout,
                               int context_rank, bool measure)
    : config_(config),
      mask_(options.mask),
      layout_(layout),
      context_rank_(context_rank),
      measure_(measure),
      spans_(SpansOf(layout)),
      kv_of_(KvHeads(config)),
      masks_(config.layer_kinds.size()),
      kinds_(config.layer_kinds.size()),
      tokens_(RowsOf(DType::kInt32, layout, measure)),
      targets_(RowsOf(DType::kInt32, layout, measure)),
      positions_(RowsOf(DType::kInt64, layout, measure)) {
  CHECK(layout.length() <= options.max_target_length);
  for (const LayerKind& kind : config.layer_kinds)
    rope_tables_.emplace_back(kind.rope, config.head_dim, options.max_target_length, measure);
  for (size_t kind = 0; kind < kinds_.size(); ++kind)
    kinds_[kind].shards = {.mask = &masks_[kind],
                           .spans = spans_,
                           .kv_of = kv_of_,
                           .scale = static_cast<float>(config.attention_scale),
                           .soft_cap = static_cast<float>(config.attention_soft_cap)};
}

void SequenceLoader::CopyRows(const Batch& batch) {
  CHECK(static_cast<int64_t>(batch.tokens.size()) == layout_.length());
  const Shard shard = TakeShard(batch, layout_, context_rank_);
  for (const int32_t token : shard.tokens)
    Require(0 <= token && token < config_.vocab_size,
            "token id {} in the data is not in the model's vocabulary of {}; was the text tokenized for "
            "another model?",
            token, config_.vocab_size);
  for (const int32_t target : shard.targets)
    Require(target == kIgnoreTarget || (0 <= target && target < config_.vocab_size),
            "target {} in the data is not in the model's vocabulary of {} (nor {}, no target)", target,
            config_.vocab_size, kIgnoreTarget);
  CopyTo(shard.tokens, tokens_.tensor());
  CopyTo(shard.targets, targets_.tensor());
  CopyTo(shard.positions, positions_.tensor());
}

Sequence SequenceLoader::Load(const Batch& batch, int64_t longest_document) {
  if (!measure_) CopyRows(batch);
  int64_t longest = longest_document;  // positions
  for (const Segment& segment : SegmentsOf(batch.documents, batch.branches))
    longest = std::max(longest, segment.PositionOf(segment.rows.end));
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    masks_[kind] = MakeMask(MaskOf(config_.layer_kinds[kind], mask_), batch.documents, batch.branches);
    kinds_[kind].rope = rope_tables_[kind].tables(longest);
  }
  return {.tokens = tokens_.tensor(),
          .targets = targets_.tensor(),
          .positions = positions_.tensor(),
          .kinds = kinds_};
}

int64_t SequenceLoader::num_bytes() const {
  int64_t bytes = tokens_.num_bytes() + targets_.num_bytes() + positions_.num_bytes();
  for (const OwnedRopeTables& tables : rope_tables_) bytes += tables.num_bytes();
  return bytes;
}

}  // namespace longspan
