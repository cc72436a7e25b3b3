#include "model/activations.h"

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
      {kOutProj, "out_proj", {kContext}},
      {kMlpwi0, "mlpwi_0", {kDecoderLayerInput, kOutProj}},
      {kMlpwi1, "mlpwi_1", {kDecoderLayerInput, kOutProj}},
      {kMlpwo, "mlpwo", {kMlpwi0, kMlpwi1}},
  };
  return table;
}

const ActivationRow& RowOf(Activation id) { return ActivationTable()[static_cast<size_t>(id)]; }

Tensor ActivationShape(const ModelConfig& config, Activation id, int64_t rows, DType dtype) {
  const int64_t heads = config.num_attention_heads, kv_heads = config.num_key_value_heads;
  switch (id) {
    case Activation::kDecoderLayerInput:
    case Activation::kOutProj:
    case Activation::kMlpwo:
      return Tensor(nullptr, dtype, {rows, config.hidden_size});
    case Activation::kQueryProj:
    case Activation::kContext:
      return Tensor(nullptr, dtype, {rows, heads, config.head_dim});
    case Activation::kKeyProj:
    case Activation::kValueProj:
      return Tensor(nullptr, dtype, {rows, kv_heads, config.head_dim});
    case Activation::kContextLse:
      return Tensor(nullptr, DType::kFloat32, {rows, heads});
    case Activation::kMlpwi0:
    case Activation::kMlpwi1:
      return Tensor(nullptr, dtype, {rows, config.intermediate_size});
  }
  CHECK(false);
  return {};
}

bool IsRead(const ModelConfig& config, Activation id) {
  return id != Activation::kMlpwo || config.sandwich_norms;
}

namespace {

int64_t BytesOf(const ModelConfig& config, int64_t rows, DType dtype, const ActivationPolicy& policy) {
  int64_t bytes = 0;
  for (const ActivationRow& row : ActivationTable())
    if (policy.Of(row.id) == Placement::kDevice)
      bytes += config.num_hidden_layers *
               Arena::AllocationBytes(ActivationShape(config, row.id, rows, dtype).num_bytes());
  return bytes;
}

}  // namespace

ResidentActivationStore::ResidentActivationStore(const ModelConfig& config, int64_t rows, DType dtype,
                                                 const ActivationPolicy& policy, bool measure)
    : arena_(measure ? Arena::Mode::kMeasure : Arena::Mode::kReal, BytesOf(config, rows, dtype, policy)) {
  for (const ActivationRow& row : ActivationTable()) {
    CHECK(policy == ActivationPolicy() || !row.recomputed_from.empty() || policy.Keeps(row.id));
    if (policy.Of(row.id) != Placement::kDevice) continue;
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
