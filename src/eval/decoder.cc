#include "eval/decoder.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "core/check.h"
#include "model/sequence.h"

namespace longspan {
namespace {

constexpr int64_t kChunkRows = 512;  // of a prompt that run through the model at a time

std::vector<std::unique_ptr<CachedAttention>> MakeAttention(const ModelConfig& config,
                                                            const ModelOptions& options) {
  std::vector<std::unique_ptr<CachedAttention>> layers;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    layers.push_back(std::make_unique<CachedAttention>(config, options.dtype, options.max_target_length));
  return layers;
}

std::vector<AttentionStrategy*> Pointers(const std::vector<std::unique_ptr<CachedAttention>>& layers) {
  std::vector<AttentionStrategy*> pointers;
  for (const auto& layer : layers) pointers.push_back(layer.get());
  return pointers;
}

}  // namespace

CachedAttention::CachedAttention(const ModelConfig& config, DType dtype, int64_t capacity)
    : keys_(dtype, {capacity, config.num_key_value_heads, config.head_dim}),
      values_(dtype, {capacity, config.num_key_value_heads, config.head_dim}) {}

void CachedAttention::Forward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v,
                              Tensor out, Tensor lse) {
  const Range rows = {length_, length_ + q.dim(0)}, read = {0, rows.end};
  CHECK(read.end <= keys_.tensor().dim(0));
  backend.Copy(k, keys_.tensor().Rows(rows.begin, rows.end));
  backend.Copy(v, values_.tensor().Rows(rows.begin, rows.end));
  length_ = read.end;
  backend.AttentionForward({.mask = shards.mask,
                            .query_spans = {&rows, 1},
                            .key_spans = {&read, 1},
                            .kv_of = shards.kv_of,
                            .scale = shards.scale,
                            .soft_cap = shards.soft_cap,
                            .sinks = shards.sinks},
                           q, keys_.tensor().Rows(0, read.end), values_.tensor().Rows(0, read.end),
                           /*first=*/true,
                           /*last=*/true, {}, out, lse);
}

void CachedAttention::Backward(Backend&, const SequenceShards&, Tensor, Tensor, Tensor, Tensor, Tensor,
                               Tensor, Tensor, Tensor, Tensor) {
  throw std::logic_error("a cache of keys and values has no backward pass");
}

Decoder::Decoder(const ModelConfig& config, const ModelOptions& options, Backend& backend,
                 WeightStore& weights)
    : config_(config),
      options_(options),
      attention_(MakeAttention(config, options)),
      activations_(config, 0, options.dtype, {}, /*measure=*/false),
      model_(config, options, backend, Pointers(attention_), weights, activations_),
      kv_of_(KvHeads(config)),
      masks_(config.layer_kinds.size()),
      kinds_(config.layer_kinds.size()),
      tokens_(DType::kInt32, {kChunkRows}),
      positions_(DType::kInt64, {kChunkRows}),
      hidden_(options.dtype, {kChunkRows, config.hidden_size}),
      logits_(DType::kFloat32, {1, config.vocab_size}) {
  const Documents text = {{0, options.max_target_length}};
  for (const LayerKind& kind : config.layer_kinds)
    rope_tables_.emplace_back(kind.rope, config.head_dim, options.max_target_length);
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    masks_[kind] = MakeMask(MaskOf(config.layer_kinds[kind], options.mask), text);
    // Scaling that depends on the length goes by the longest that the text may become: keys are rotated once.
    kinds_[kind] = {.shards = {.mask = &masks_[kind],
                               .spans = {},
                               .kv_of = kv_of_,
                               .scale = static_cast<float>(config.attention_scale),
                               .soft_cap = static_cast<float>(config.attention_soft_cap)},
                    .rope = rope_tables_[kind].tables(options.max_target_length)};
  }
}

std::span<const float> Decoder::Read(std::span<const int32_t> tokens) {
  CHECK(!tokens.empty() && length_ + static_cast<int64_t>(tokens.size()) <= options_.max_target_length);
  for (const int32_t token : tokens)
    Require(0 <= token && token < config_.vocab_size,
            "token id {} of the prompt is not in the model's vocabulary of {}; was the text tokenized for "
            "another "
            "model?",
            token, config_.vocab_size);
  Tensor last;  // hidden row
  while (!tokens.empty()) {
    const size_t chunk = std::min(tokens.size(), static_cast<size_t>(kChunkRows));
    last = ReadChunk(tokens.first(chunk));
    tokens = tokens.subspan(chunk);
  }
  model_.Logits(last, logits_.tensor());
  return {logits_.tensor().data<float>(), static_cast<size_t>(config_.vocab_size)};
}

Tensor Decoder::ReadChunk(std::span<const int32_t> tokens) {
  const auto rows = static_cast<int64_t>(tokens.size());
  std::ranges::copy(tokens, tokens_.tensor().data<int32_t>());
  std::iota(positions_.tensor().data<int64_t>(), positions_.tensor().data<int64_t>() + rows, length_);
  const Tensor hidden = hidden_.tensor().Rows(0, rows);
  model_.Hidden({.tokens = tokens_.tensor().Rows(0, rows),
                 .targets = {},
                 .positions = positions_.tensor().Rows(0, rows),
                 .kinds = kinds_},
                hidden);
  length_ += rows;
  return hidden.Rows(rows - 1, rows);
}

int64_t Decoder::CacheBytes(const ModelConfig& config, const ModelOptions& options) {
  return 2 * config.num_hidden_layers * options.max_target_length * config.num_key_value_heads *
         config.head_dim * SizeOf(options.dtype);
}

}  // namespace longspan
