#include "model/model.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/target.h"
#include "model/linear.h"
#include "model/params.h"

namespace longspan {
namespace {

std::vector<std::vector<Range>> SpansOf(const Layout& layout) {
  std::vector<std::vector<Range>> spans;
  for (int rank = 0; rank < layout.num_ranks(); ++rank) spans.push_back(layout.spans(rank));
  return spans;
}

std::vector<int32_t> KvOf(const ModelConfig& config) {
  const int64_t group = config.num_attention_heads / config.num_key_value_heads;
  std::vector<int32_t> kv_of;
  for (int64_t head = 0; head < config.num_attention_heads; ++head)
    kv_of.push_back(static_cast<int32_t>(head / group));
  return kv_of;
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
  for (const Range& span : spans) {
    // The first document that ends behind the span's first row.
    auto document = std::partition_point(batch.documents.begin(), batch.documents.end(),
                                         [&](const Range& d) { return d.end <= span.begin; });
    for (int64_t i = span.begin; i < span.end; ++i) {
      if (document != batch.documents.end() && document->end <= i) ++document;
      const bool inside = document != batch.documents.end() && document->begin <= i;
      shard.positions.push_back(inside ? i - document->begin : 0);
    }
  }
  return shard;
}

Model::Model(const ModelConfig& config, const ModelOptions& options, Backend& backend,
             AttentionStrategy& strategy, const Layout& layout, WeightStore& weights,
             ActivationStore& activations)
    : config_(config),
      options_(options),
      backend_(backend),
      layout_(layout),
      weights_(weights),
      activations_(activations),
      rope_tables_(config.layer_kinds[0].rope, config.head_dim, options.max_target_length),
      block_(config, options_, backend, strategy, activations, rope_tables_.tables(/*longest_document=*/0)),
      spans_(SpansOf(layout)),
      kv_of_(KvOf(config)),
      tokens_(DType::kInt32, {layout.rows_per_rank()}),
      targets_(DType::kInt32, {layout.rows_per_rank()}),
      positions_(DType::kInt64, {layout.rows_per_rank()}) {
  CHECK(layout.length() <= options.max_target_length && options.loss_chunk_rows > 0);
}

int64_t Model::num_bytes() const {
  return rope_tables_.num_bytes() + tokens_.num_bytes() + targets_.num_bytes() + positions_.num_bytes();
}

double Model::Loss(const Batch& batch, int context_rank) {
  const Sequence sequence = Load(batch, context_rank);
  Arena::Scope scope(backend_.arena());
  const Tensor hidden = Allocate("hidden", options_.dtype, layout_.rows_per_rank(), config_.hidden_size);
  Forward(sequence, hidden, /*keep=*/false);

  double loss = 0;
  const HeadWeights w = GetHead();
  ForEachLossChunk([&](int64_t begin, int64_t end) {
    const Tensor normed = Allocate("final_norm", options_.dtype, end - begin, config_.hidden_size);
    const Tensor logits = Allocate("logits", DType::kFloat32, end - begin, config_.vocab_size);
    Head(w, hidden.Rows(begin, end), normed, logits);
    loss += backend_.CrossEntropy(logits, sequence.targets.Rows(begin, end));
  });
  ReleaseHead();
  return loss;
}

void Model::Logits(const Batch& batch, int context_rank, Tensor logits) {
  const Sequence sequence = Load(batch, context_rank);
  Arena::Scope scope(backend_.arena());
  const Tensor hidden = Allocate("hidden", options_.dtype, layout_.rows_per_rank(), config_.hidden_size);
  Forward(sequence, hidden, /*keep=*/false);

  const HeadWeights w = GetHead();
  ForEachLossChunk([&](int64_t begin, int64_t end) {
    const Tensor normed = Allocate("final_norm", options_.dtype, end - begin, config_.hidden_size);
    Head(w, hidden.Rows(begin, end), normed, logits.Rows(begin, end));
  });
  ReleaseHead();
}

double Model::LossAndGradients(const Batch& batch, int context_rank, double loss_scale) {
  const Sequence sequence = Load(batch, context_rank);
  Arena::Scope scope(backend_.arena());
  // The last block's output. The head turns it into its gradient, and each block that into its input's.
  const Tensor hidden = Allocate("hidden", options_.dtype, layout_.rows_per_rank(), config_.hidden_size);
  Forward(sequence, hidden, /*keep=*/true);
  const double loss = HeadLossAndGradients(sequence, hidden, loss_scale);

  for (int layer = static_cast<int>(config_.num_hidden_layers) - 1; layer >= 0; --layer) {
    const int unit = layer + 1;
    if (layer > 0) {
      weights_.Prefetch(unit - 1);
      activations_.Prefetch(layer - 1);
    }
    block_.Backward(layer, weights_.Get(unit), weights_.Grad(unit), sequence, hidden);
    weights_.Release(unit);
    weights_.GradReady(unit);
  }
  backend_.EmbeddingBackward(sequence.tokens, hidden, weights_.Grad(0)[0]);
  weights_.GradReady(0);
  return loss;
}

void Model::Forward(const Sequence& sequence, Tensor hidden, bool keep) {
  const int num_layers = static_cast<int>(config_.num_hidden_layers);
  // Where the input of a layer lies: in the activation store or, if nothing is kept, always in `hidden`.
  const auto input_of = [&](int layer) {
    return keep && layer < num_layers ? activations_.Slot(layer, Activation::kDecoderLayerInput) : hidden;
  };

  weights_.Prefetch(0);
  Tensor x = input_of(0);
  weights_.Prefetch(1);
  backend_.Embedding(sequence.tokens, weights_.Get(0)[0].values, x);
  weights_.Release(0);
  for (int layer = 0; layer < num_layers; ++layer) {
    const int unit = layer + 1;
    if (keep) activations_.Keep(layer, Activation::kDecoderLayerInput);
    weights_.Prefetch(unit + 1);
    const Tensor y = input_of(layer + 1);
    block_.Forward(layer, weights_.Get(unit), sequence, x, y, keep);
    weights_.Release(unit);
    x = y;
  }
}

double Model::HeadLossAndGradients(const Sequence& sequence, Tensor hidden, double loss_scale) {
  const int64_t width = config_.hidden_size;
  double loss = 0;
  const HeadWeights w = GetHead();
  const std::span<const Tensor> dlast = weights_.Grad(last_unit());
  const Tensor dhead = config_.tie_word_embeddings ? weights_.Grad(0)[0] : dlast[kHead];
  weights_.Prefetch(last_unit() - 1);
  activations_.Prefetch(static_cast<int>(config_.num_hidden_layers) - 1);
  ForEachLossChunk([&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    const Tensor x = hidden.Rows(begin, end);
    const Tensor normed = Allocate("final_norm", options_.dtype, n, width);
    const Tensor logits = Allocate("logits", DType::kFloat32, n, config_.vocab_size);
    const Tensor dlogits = Allocate("logits_gradient", options_.dtype, n, config_.vocab_size);
    Head(w, x, normed, logits);
    loss += backend_.CrossEntropyBackward(logits, sequence.targets.Rows(begin, end),
                                          static_cast<float>(loss_scale), dlogits);
    LinearBackwardWeight(backend_, dlogits, normed, dhead);

    const Tensor dnormed = Allocate("final_norm_gradient", DType::kFloat32, n, width);
    LinearBackwardInput(backend_, dlogits, w.head, dnormed);
    backend_.RmsNormBackward(x, {w.norm, config_.rms_norm_eps}, dnormed, /*dx=*/x, dlast[kFinalNorm],
                             /*accumulate=*/false);
  });
  ReleaseHead();
  weights_.GradReady(last_unit());  // the embedding's, if tied, only after its own backward pass
  return loss;
}

Model::HeadWeights Model::GetHead() {
  const bool tied = config_.tie_word_embeddings;
  if (tied) weights_.Prefetch(0);
  const std::span<const Weight> last = weights_.Get(last_unit());
  return {.norm = last[kFinalNorm].values, .head = tied ? weights_.Get(0)[0] : last[kHead]};
}

void Model::ReleaseHead() {
  weights_.Release(last_unit());
  if (config_.tie_word_embeddings) weights_.Release(0);
}

void Model::Head(const HeadWeights& w, Tensor hidden, Tensor normed, Tensor logits) {
  backend_.RmsNorm(hidden, {w.norm, config_.rms_norm_eps}, normed);
  Linear(backend_, normed, w.head, logits);
}

Sequence Model::Load(const Batch& batch, int context_rank) {
  CHECK(static_cast<int64_t>(batch.tokens.size()) == layout_.length());
  const Shard shard = TakeShard(batch, layout_, context_rank);
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
  mask_ = MakeMask(options_.mask, batch.documents);
  return {.tokens = tokens_.tensor(),
          .targets = targets_.tensor(),
          .positions = positions_.tensor(),
          .shards = {.mask = &mask_,
                     .spans = spans_,
                     .kv_of = kv_of_,
                     .scale = static_cast<float>(config_.attention_scale)}};
}

Tensor Model::Allocate(std::string_view name, DType dtype, int64_t rows, int64_t width) {
  return backend_.arena().Allocate(name, dtype, {rows, width});
}

template <class F>
void Model::ForEachLossChunk(F f) {
  const int64_t rows = layout_.rows_per_rank();
  for (int64_t begin = 0; begin < rows; begin += options_.loss_chunk_rows) {
    Arena::Scope scope(backend_.arena());
    f(begin, std::min(rows, begin + options_.loss_chunk_rows));
  }
}

}  // namespace longspan
