#include "model/model.h"

#include "core/check.h"
#include "model/linear.h"
#include "model/params.h"

namespace longspan {

Model::Model(const ModelConfig& config, const ModelOptions& options, Backend& backend,
             std::span<AttentionStrategy* const> strategies, WeightStore& weights,
             ActivationStore& activations)
    : config_(config),
      options_(options),
      backend_(backend),
      weights_(weights),
      activations_(activations),
      block_(config, options_, backend, strategies, activations) {
  CHECK(options.loss_chunk_rows > 0);
}

double Model::Loss(const Sequence& sequence) {
  double loss = 0;
  ForEachLogits(sequence, [&](int64_t begin, int64_t end, Tensor logits) {
    loss += backend_.CrossEntropy(logits, sequence.targets.Rows(begin, end));
  });
  return loss;
}

void Model::TokenLosses(const Sequence& sequence, Tensor losses, Tensor argmax) {
  ForEachLogits(sequence, [&](int64_t begin, int64_t end, Tensor logits) {
    backend_.TokenLosses(logits, sequence.targets.Rows(begin, end), losses.Rows(begin, end),
                         argmax.Rows(begin, end));
  });
}

template <class F>
void Model::ForEachLogits(const Sequence& sequence, F f) {
  Arena::Scope scope(backend_.arena());
  const Tensor hidden = Allocate("hidden", options_.dtype, sequence.tokens.dim(0), config_.hidden_size);
  Hidden(sequence, hidden);
  const HeadWeights w = GetHead();
  ForEachLossChunk(hidden.dim(0), [&](int64_t begin, int64_t end) {
    const Tensor normed = Allocate("final_norm", options_.dtype, end - begin, config_.hidden_size);
    const Tensor logits = Allocate("logits", DType::kFloat32, end - begin, config_.vocab_size);
    Head(w, hidden.Rows(begin, end), normed, logits);
    f(begin, end, logits);
  });
  ReleaseHead();
}

void Model::Logits(const Sequence& sequence, Tensor logits) {
  Arena::Scope scope(backend_.arena());
  const Tensor hidden = Allocate("hidden", options_.dtype, sequence.tokens.dim(0), config_.hidden_size);
  Hidden(sequence, hidden);
  Logits(hidden, logits);
}

void Model::Logits(Tensor hidden, Tensor logits) {
  const HeadWeights w = GetHead();
  ForEachLossChunk(hidden.dim(0), [&](int64_t begin, int64_t end) {
    const Tensor normed = Allocate("final_norm", options_.dtype, end - begin, config_.hidden_size);
    Head(w, hidden.Rows(begin, end), normed, logits.Rows(begin, end));
  });
  ReleaseHead();
}

double Model::LossAndGradients(const Sequence& sequence, double loss_scale) {
  Arena::Scope scope(backend_.arena());
  // The last block's output. The head turns it into its gradient, and each block that into its input's.
  const Tensor hidden = Allocate("hidden", options_.dtype, sequence.tokens.dim(0), config_.hidden_size);
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
  ScaleEmbedding(hidden);
  backend_.EmbeddingBackward(sequence.tokens, hidden, config_.pad_token_id, weights_.Grad(0)[0]);
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
  ScaleEmbedding(x);
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
  ForEachLossChunk(hidden.dim(0), [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    const Tensor x = hidden.Rows(begin, end);
    const Tensor normed = Allocate("final_norm", options_.dtype, n, width);
    const Tensor logits = Allocate("logits", DType::kFloat32, n, config_.vocab_size);
    const Tensor dlogits = Allocate("logits_gradient", options_.dtype, n, config_.vocab_size);
    Head(w, x, normed, logits);
    loss += backend_.CrossEntropyBackward(logits, sequence.targets.Rows(begin, end),
                                          static_cast<float>(loss_scale), dlogits);
    if (config_.final_soft_cap > 0) backend_.SoftCapBackward(logits, final_soft_cap(), dlogits);
    LinearBackwardWeight(backend_, dlogits, normed, dhead);

    const Tensor dnormed = Allocate("final_norm_gradient", DType::kFloat32, n, width);
    LinearBackwardInput(backend_, dlogits, w.head, dnormed);
    backend_.RmsNormBackward(x, FinalNorm(w), dnormed, /*dx=*/x, dlast[kFinalNorm],
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
  backend_.RmsNorm(hidden, FinalNorm(w), normed);
  Linear(backend_, normed, w.head, logits);
  if (config_.final_soft_cap > 0) backend_.SoftCap(final_soft_cap(), logits);
}

Norm Model::FinalNorm(const HeadWeights& w) const {
  return {w.norm, config_.rms_norm_eps, static_cast<float>(config_.norm_offset)};
}

void Model::ScaleEmbedding(Tensor x) {
  if (config_.embedding_scale == 1) return;
  const float scale = static_cast<float>(config_.embedding_scale);
  backend_.Scale(options_.dtype == DType::kBFloat16 ? static_cast<float>(BFloat16(scale)) : scale, x);
}

Tensor Model::Allocate(std::string_view name, DType dtype, int64_t rows, int64_t width) {
  return backend_.arena().Allocate(name, dtype, {rows, width});
}

}  // namespace longspan
