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
  void Add(std::string name, std::vector<int64_t> shape, ParamKind kind, bool in_products = false) {
    ParamRow row{.name = std::move(name),
                 .shape = std::move(shape),
                 .kind = kind,
                 .decays = kind != ParamKind::kVector,
                 .in_products = in_products || kind == ParamKind::kMatrix};
    row.offset = unit_.num_elements;
    row.num_elements = 1;
    for (int64_t size : row.shape) row.num_elements *= size;
    unit_.num_elements = RoundUp(row.offset + row.num_elements, kUnitAlignment);
    unit_.rows.push_back(std::move(row));
  }
  ParamUnit Take() { return std::move(unit_); }

 private:
  ParamUnit unit_;
};

ParamUnit BlockUnit(const ModelConfig& config, int64_t layer) {
  const int64_t width = config.hidden_size, feed_forward = config.intermediate_size;
  const int64_t query = config.num_attention_heads * config.head_dim;
  const int64_t key = config.num_key_value_heads * config.head_dim;
  UnitBuilder unit;  // in the order of BlockParam
  const auto add = [&](const char* name, std::vector<int64_t> shape) {
    const ParamKind kind = shape.size() == 1 ? ParamKind::kVector : ParamKind::kMatrix;
    unit.Add(fmt::format("model.layers.{}.{}.weight", layer, name), std::move(shape), kind);
  };
  add("input_layernorm", {width});
  add("self_attn.q_proj", {query, width});
  add("self_attn.k_proj", {key, width});
  add("self_attn.v_proj", {key, width});
  add("self_attn.o_proj", {width, query});
  add("post_attention_layernorm", {width});
  add("mlp.gate_proj", {feed_forward, width});
  add("mlp.up_proj", {feed_forward, width});
  add("mlp.down_proj", {width, feed_forward});
  return unit.Take();
}

}  // namespace

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
  last.Add("model.norm.weight", {width}, ParamKind::kVector);
  if (!config.tie_word_embeddings) last.Add("lm_head.weight", {vocabulary, width}, ParamKind::kMatrix);
  table.units.push_back(last.Take());
  return table;
}

std::vector<Tensor> UnitViews(const ParamUnit& unit, Tensor flat) {
  CHECK(flat.num_elements() == unit.num_elements);
  const Tensor elements = flat.Reshape({flat.num_elements()});
  std::vector<Tensor> views;
  for (const ParamRow& row : unit.rows)
    views.emplace_back(elements.Rows(row.offset, row.offset + row.num_elements).raw(), flat.dtype(),
                       std::span<const int64_t>(row.shape));
  return views;
}

void InitializeParam(const ParamRow& row, double initializer_range, uint64_t seed, int num_threads,
                     Tensor values) {
  CHECK(values.num_elements() == row.num_elements);
  float* data = values.data<float>();
  const CounterRandom random(seed, row.name);
  constexpr int64_t kBlock = int64_t{1} << 13;  // elements: some hundred microseconds
  cpu::ParallelBlocks(num_threads, row.num_elements, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      data[i] = row.kind == ParamKind::kVector
                    ? 1.0f
                    : static_cast<float>(initializer_range * random.Normal(static_cast<uint64_t>(i)));
  });
}

}  // namespace longspan
