#include "model/params.h"

#include <fmt/format.h>

#include <utility>

#include "backend/cpu/parallel.h"
#include "core/check.h"
#include "core/random.h"

namespace longspan {
namespace {

int64_t RoundUp(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

// Rows of one unit, laid out one after the other.
class UnitBuilder {
 public:
  // `fused`: the stored tensor of which this is the next part, else empty.
  void Add(std::string name, std::vector<int64_t> shape, ParamKind kind, bool in_products,
           float initial_value = 0, const std::string& fused = "") {
    int64_t num_elements = 1;
    for (const int64_t size : shape) num_elements *= size;
    const bool is_next_part = !fused.empty() && !unit_.stored.empty() && unit_.stored.back().name == fused;
    if (is_next_part) {
      unit_.stored.back().shape[0] += shape[0];
      unit_.stored.back().num_elements += num_elements;
    } else {
      end_ = RoundUp(end_, kUnitAlignment);
      unit_.stored.push_back({fused.empty() ? name : fused, shape, end_, num_elements});
    }
    unit_.rows.push_back({.name = std::move(name),
                          .shape = std::move(shape),
                          .kind = kind,
                          .initial_value = initial_value,
                          .decays = kind != ParamKind::kVector,
                          .in_products = in_products,
                          .offset = end_,
                          .num_elements = num_elements});
    end_ += num_elements;
  }
  ParamUnit Take() {
    unit_.num_elements = RoundUp(end_, kUnitAlignment);
    return std::move(unit_);
  }

 private:
  ParamUnit unit_;
  int64_t end_ = 0;  // of the last row
};

// What a norm that multiplies by 1 holds.
float UnitGain(const ModelConfig& config) { return static_cast<float>(1 - config.norm_offset); }

// Of one parameter of a block: its name behind "model.layers.N.", and its shape.
struct BlockParamShape {
  std::string_view name;
  std::vector<int64_t> shape;
  std::string_view fused = {};  // the tensor of which it is a part in fused files
};

BlockParamShape ShapeOf(const ModelConfig& config, BlockParam param) {
  const int64_t width = config.hidden_size, inner = config.intermediate_size, head = config.head_dim;
  const int64_t query = config.num_attention_heads * head, key = config.num_key_value_heads * head;
  switch (param) {
    case kInputNorm:
      return {"input_layernorm.weight", {width}};
    case kQueryProj:
      return {"self_attn.q_proj.weight", {query, width}, "self_attn.qkv_proj.weight"};
    case kKeyProj:
      return {"self_attn.k_proj.weight", {key, width}, "self_attn.qkv_proj.weight"};
    case kValueProj:
      return {"self_attn.v_proj.weight", {key, width}, "self_attn.qkv_proj.weight"};
    case kQueryBias:
      return {"self_attn.q_proj.bias", {query}};
    case kKeyBias:
      return {"self_attn.k_proj.bias", {key}};
    case kValueBias:
      return {"self_attn.v_proj.bias", {key}};
    case kQueryNorm:
      return {"self_attn.q_norm.weight", {head}};
    case kKeyNorm:
      return {"self_attn.k_norm.weight", {head}};
    case kOutProj:
      return {"self_attn.o_proj.weight", {width, query}};
    case kOutBias:
      return {"self_attn.o_proj.bias", {width}};
    case kAttentionOutNorm:
      return {"post_attention_layernorm.weight", {width}};
    case kFeedForwardNorm:  // "post_attention" means behind attention's output or behind the sum with it
      return {config.sandwich_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight",
              {width}};
    case kGateProj:
      return {"mlp.gate_proj.weight", {inner, width}, "mlp.gate_up_proj.weight"};
    case kUpProj:
      return {"mlp.up_proj.weight", {inner, width}, "mlp.gate_up_proj.weight"};
    case kGateBias:
      return {"mlp.gate_proj.bias", {inner}};
    case kUpBias:
      return {"mlp.up_proj.bias", {inner}};
    case kDownProj:
      return {"mlp.down_proj.weight", {width, inner}};
    case kDownBias:
      return {"mlp.down_proj.bias", {width}};
    case kFeedForwardOutNorm:
      return {"post_feedforward_layernorm.weight", {width}};
    case kNumBlockParams:
      break;
  }
  CHECK(false);
  return {};
}

bool Has(const ModelConfig& config, BlockParam param) {
  switch (param) {
    case kQueryBias:
    case kKeyBias:
    case kValueBias:
      return config.query_key_value_bias;
    case kQueryNorm:
    case kKeyNorm:
      return config.query_key_norm;
    case kOutBias:
      return config.out_proj_bias;
    case kAttentionOutNorm:
    case kFeedForwardOutNorm:
      return config.sandwich_norms;
    case kGateBias:
    case kUpBias:
    case kDownBias:
      return config.mlp_bias;
    default:
      return true;
  }
}

ParamUnit BlockUnit(const ModelConfig& config, int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  UnitBuilder unit;
  for (const BlockParam param : BlockParams(config)) {
    BlockParamShape row = ShapeOf(config, param);
    const bool is_matrix = row.shape.size() == 2, is_bias = row.name.ends_with(".bias");
    CHECK(!is_bias || !config.fused_projections);
    const bool is_fused = config.fused_projections && !row.fused.empty();
    unit.Add(prefix + std::string(row.name), std::move(row.shape),
             is_matrix ? ParamKind::kMatrix : ParamKind::kVector, /*in_products=*/is_matrix,
             is_matrix || is_bias ? 0 : UnitGain(config), is_fused ? prefix + std::string(row.fused) : "");
  }
  return unit.Take();
}

// Of parameters or stored tensors.
template <class Rows>
std::vector<Tensor> Views(const ParamUnit& unit, const Rows& rows, Tensor flat) {
  CHECK(flat.num_elements() == unit.num_elements);
  const Tensor elements = flat.Reshape({flat.num_elements()});
  std::vector<Tensor> views;
  for (const auto& row : rows)
    views.emplace_back(elements.Rows(row.offset, row.offset + row.num_elements).raw(), flat.dtype(),
                       std::span<const int64_t>(row.shape));
  return views;
}

}  // namespace

std::vector<BlockParam> BlockParams(const ModelConfig& config) {
  std::vector<BlockParam> params;
  for (int i = 0; i < kNumBlockParams; ++i)
    if (Has(config, static_cast<BlockParam>(i))) params.push_back(static_cast<BlockParam>(i));
  return params;
}

ParamTable MakeParamTable(const ModelConfig& config) {
  const int64_t width = config.hidden_size, vocabulary = config.vocab_size;
  ParamTable table;
  UnitBuilder embedding;
  embedding.Add("model.embed_tokens.weight", {vocabulary, width}, ParamKind::kEmbedding,
                /*in_products=*/config.tie_word_embeddings);
  table.units.push_back(embedding.Take());
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    table.units.push_back(BlockUnit(config, layer));
  UnitBuilder last;
  last.Add("model.norm.weight", {width}, ParamKind::kVector, /*in_products=*/false, UnitGain(config));
  if (!config.tie_word_embeddings)
    last.Add("lm_head.weight", {vocabulary, width}, ParamKind::kMatrix, /*in_products=*/true);
  table.units.push_back(last.Take());
  return table;
}

std::vector<Tensor> UnitViews(const ParamUnit& unit, Tensor flat) { return Views(unit, unit.rows, flat); }
std::vector<Tensor> StoredViews(const ParamUnit& unit, Tensor flat) { return Views(unit, unit.stored, flat); }

void InitializeParam(const ParamRow& row, double initializer_range, uint64_t seed, int num_threads,
                     int64_t first, Tensor values) {
  CHECK(first >= 0 && first + values.num_elements() <= row.num_elements);
  float* data = values.data<float>();
  const CounterRandom random(seed, row.name);
  constexpr int64_t kBlock = int64_t{1} << 13;  // elements: some hundred microseconds
  cpu::ParallelBlocks(num_threads, values.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      data[i] = row.kind == ParamKind::kVector
                    ? row.initial_value
                    : static_cast<float>(initializer_range * random.Normal(static_cast<uint64_t>(first + i)));
  });
}

}  // namespace longspan
