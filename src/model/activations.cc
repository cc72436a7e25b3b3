#include "model/activations.h"

#include "core/check.h"

namespace longspan {

std::span<const ActivationRow> ActivationTable() {
  using enum Activation;
  static const ActivationRow table[kNumActivations] = {
      {kDecoderLayerInput, "decoder_layer_input", {}},
      {kQueryProj, "query_proj", {kDecoderLayerInput}},
      {kKeyProj, "key_proj", {kDecoderLayerInput}},
      {kValueProj, "value_proj", {kDecoderLayerInput}},
      {kContext, "context", {kQueryProj, kKeyProj, kValueProj}},
      {kContextLse, "context_lse", {kQueryProj, kKeyProj, kValueProj}},
  };
  return table;
}

const ActivationRow& RowOf(Activation id) { return ActivationTable()[static_cast<size_t>(id)]; }

Tensor ActivationShape(const ModelConfig& config, Activation id, int64_t rows, DType dtype) {
  const int64_t heads = config.num_attention_heads, kv_heads = config.num_key_value_heads;
  switch (id) {
    case Activation::kDecoderLayerInput:
      return Tensor(nullptr, dtype, {rows, config.hidden_size});
    case Activation::kQueryProj:
    case Activation::kContext:
      return Tensor(nullptr, dtype, {rows, heads, config.head_dim});
    case Activation::kKeyProj:
    case Activation::kValueProj:
      return Tensor(nullptr, dtype, {rows, kv_heads, config.head_dim});
    case Activation::kContextLse:
      return Tensor(nullptr, DType::kFloat32, {rows, heads});
  }
  CHECK(false);
  return {};
}

namespace {

int64_t BytesOf(const ModelConfig& config, int64_t rows, DType dtype, const std::set<Activation>& kept) {
  int64_t bytes = 0;
  for (const Activation id : kept)
    bytes += config.num_hidden_layers *
             Arena::AllocationBytes(ActivationShape(config, id, rows, dtype).num_bytes());
  return bytes;
}

}  // namespace

ResidentActivationStore::ResidentActivationStore(const ModelConfig& config, int64_t rows, DType dtype,
                                                 const std::set<Activation>& kept, bool measure)
    : arena_(measure ? Arena::Mode::kMeasure : Arena::Mode::kReal, BytesOf(config, rows, dtype, kept)) {
  for (const ActivationRow& row : ActivationTable()) {
    CHECK(kept.empty() || !row.recomputed_from.empty() || kept.contains(row.id));
    if (!kept.contains(row.id)) continue;
    const Tensor shape = ActivationShape(config, row.id, rows, dtype);
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
      slots_[Index(row.id)].push_back(arena_.Allocate(row.name, shape.dtype(), shape.shape()));
  }
}

const Tensor& ResidentActivationStore::At(int layer, Activation id) const {
  const std::vector<Tensor>& layers = slots_[Index(id)];
  CHECK(0 <= layer && static_cast<size_t>(layer) < layers.size());
  return layers[static_cast<size_t>(layer)];
}

int64_t ResidentActivationStore::num_bytes() const { return arena_.used_bytes(); }

int64_t ResidentActivationStore::num_bytes(Activation id) const {
  const auto& by_name = arena_.peak_by_name();
  const auto it = by_name.find(RowOf(id).name);
  return it == by_name.end() ? 0 : it->second;
}

}  // namespace longspan
