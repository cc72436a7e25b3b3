#include "model/params.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longspan {
namespace {

ModelConfig Config(bool tied) {
  return ParseModelConfig(fmt::format(R"({{"model_type": "llama", "hidden_size": 24, "intermediate_size": 20,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 6, "num_hidden_layers": 3, "vocab_size": 50,
    "tie_word_embeddings": {}}})",
                                      tied),
                          "test");
}

TEST(Params, NamesAndShapesAreHuggingFaces) {
  const ParamTable table = MakeParamTable(Config(false));
  ASSERT_EQ(table.num_units(), 5);
  const std::pair<const char*, std::vector<int64_t>> block[] = {
      {"model.layers.1.input_layernorm.weight", {24}},
      {"model.layers.1.self_attn.q_proj.weight", {36, 24}},
      {"model.layers.1.self_attn.k_proj.weight", {12, 24}},
      {"model.layers.1.self_attn.v_proj.weight", {12, 24}},
      {"model.layers.1.self_attn.o_proj.weight", {24, 36}},
      {"model.layers.1.post_attention_layernorm.weight", {24}},
      {"model.layers.1.mlp.gate_proj.weight", {20, 24}},
      {"model.layers.1.mlp.up_proj.weight", {20, 24}},
      {"model.layers.1.mlp.down_proj.weight", {24, 20}},
  };
  const std::vector<ParamRow>& rows = table.units[2].rows;
  ASSERT_EQ(rows.size(), static_cast<size_t>(kNumBlockParams));
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].name, block[i].first);
    EXPECT_EQ(rows[i].shape, block[i].second);
    EXPECT_EQ(rows[i].decays, rows[i].shape.size() == 2);
    EXPECT_EQ(rows[i].in_products, rows[i].shape.size() == 2);
    EXPECT_EQ(rows[i].kind, rows[i].shape.size() == 2 ? ParamKind::kMatrix : ParamKind::kVector);
  }
  EXPECT_EQ(rows[kInputNorm].name, block[0].first);
  EXPECT_EQ(rows[kOutProj].name, block[4].first);
  EXPECT_EQ(rows[kDownProj].name, block[8].first);
  EXPECT_EQ(table.units[0].rows[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(table.units[0].rows[0].kind, ParamKind::kEmbedding);
  EXPECT_EQ(table.units[4].rows[kFinalNorm].name, "model.norm.weight");
  EXPECT_EQ(table.units[4].rows[kHead].name, "lm_head.weight");
  EXPECT_EQ(table.units[4].rows[kHead].shape, (std::vector<int64_t>{50, 24}));
  EXPECT_TRUE(table.units[4].rows[kHead].in_products);
  EXPECT_FALSE(table.units[0].rows[0].in_products);
  EXPECT_EQ(MakeParamTable(Config(true)).units[4].rows.size(), 1u);  // the head is the embedding
  EXPECT_TRUE(MakeParamTable(Config(true)).units[0].rows[0].in_products);
}

TEST(Params, UnitsAreFlatAlignedAndComplete) {
  for (const bool tied : {false, true}) {
    const ModelConfig config = Config(tied);
    const ParamTable table = MakeParamTable(config);
    int64_t total = 0;
    for (const ParamUnit& unit : table.units) {
      int64_t end = 0;
      for (const ParamRow& row : unit.rows) {
        EXPECT_EQ(row.offset % kUnitAlignment, 0);
        EXPECT_GE(row.offset, end);
        EXPECT_LT(row.offset - end, kUnitAlignment);
        end = row.offset + row.num_elements;
        total += row.num_elements;
      }
      EXPECT_EQ(unit.num_elements % kUnitAlignment, 0);
      EXPECT_GE(unit.num_elements, end);
    }
    EXPECT_EQ(total, config.num_parameters());
    Buffer flat(DType::kFloat32, {table.units[1].num_elements});
    const std::vector<Tensor> views = UnitViews(table.units[1], flat.tensor());
    EXPECT_EQ(views[kKeyProj].data<float>() - flat.tensor().data<float>(),
              table.units[1].rows[kKeyProj].offset);
    EXPECT_EQ(views[kKeyProj].dim(0), 12);
    EXPECT_EQ(views[kKeyProj].dim(1), 24);
  }
}

TEST(Params, InitialValuesDependOnSeedNameAndElementAlone) {
  const ParamTable table = MakeParamTable(Config(false));
  const auto values = [](const ParamRow& row, uint64_t seed, int num_threads = 1) {
    Buffer buffer(DType::kFloat32, {row.num_elements});
    InitializeParam(row, 0.02, seed, num_threads, buffer.tensor());
    const float* data = buffer.tensor().data<float>();
    return std::vector<float>(data, data + row.num_elements);
  };
  const ParamRow& gate = table.units[1].rows[kGateProj];
  EXPECT_EQ(values(gate, 7), values(gate, 7));
  EXPECT_NE(values(gate, 7), values(gate, 8));
  EXPECT_NE(values(gate, 7), values(table.units[2].rows[kGateProj], 7));
  ParamRow longer = gate;  // more elements of the same name begin with the same ones
  longer.num_elements *= 20;
  const std::vector<float> many = values(longer, 7), few = values(gate, 7);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
#if !defined(__SANITIZE_THREAD__)  // it doesn't know libgomp
  EXPECT_EQ(values(longer, 7, 3), many);
#endif
  double sum = 0, squares = 0;
  for (const float x : many) sum += x, squares += double{x} * x;
  const double n = static_cast<double>(many.size());
  EXPECT_NEAR(sum / n, 0, 4 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.02 * 4 / std::sqrt(2 * n));
  for (const float x : values(table.units[1].rows[kInputNorm], 7)) EXPECT_EQ(x, 1.0f);
}

}  // namespace
}  // namespace longspan
