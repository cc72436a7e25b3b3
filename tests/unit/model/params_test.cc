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
  ASSERT_EQ(rows.size(), std::size(block));
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].name, block[i].first);
    EXPECT_EQ(rows[i].shape, block[i].second);
    EXPECT_EQ(rows[i].decays, rows[i].shape.size() == 2);
    EXPECT_EQ(rows[i].in_products, rows[i].shape.size() == 2);
    EXPECT_EQ(rows[i].kind, rows[i].shape.size() == 2 ? ParamKind::kMatrix : ParamKind::kVector);
  }
  EXPECT_EQ(BlockParams(Config(false)),
            (std::vector<BlockParam>{kInputNorm, kQueryProj, kKeyProj, kValueProj, kOutProj, kFeedForwardNorm,
                                     kGateProj, kUpProj, kDownProj}));
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

TEST(Params, EverySwitchHasItsParameters) {
  ModelConfig config = Config(true);
  config.query_key_value_bias = config.out_proj_bias = config.mlp_bias = true;
  config.query_key_norm = config.sandwich_norms = true;
  config.norm_offset = 1;
  const std::vector<BlockParam> params = BlockParams(config);
  ASSERT_EQ(params.size(), static_cast<size_t>(kNumBlockParams));
  const ParamTable table = MakeParamTable(config);
  const auto row = ByBlockParam(params, std::span<const ParamRow>(table.units[1].rows));
  const auto expect = [&](BlockParam param, const char* name, std::vector<int64_t> shape) {
    EXPECT_EQ(row[param].name, std::string("model.layers.0.") + name);
    EXPECT_EQ(row[param].shape, shape);
    EXPECT_EQ(row[param].kind, ParamKind::kVector);
    EXPECT_FALSE(row[param].decays || row[param].in_products);
    EXPECT_EQ(row[param].initial_value, 0) << name;  // a norm's too: it multiplies by 1 + that
  };
  expect(kQueryBias, "self_attn.q_proj.bias", {36});
  expect(kKeyBias, "self_attn.k_proj.bias", {12});
  expect(kValueBias, "self_attn.v_proj.bias", {12});
  expect(kOutBias, "self_attn.o_proj.bias", {24});
  expect(kQueryNorm, "self_attn.q_norm.weight", {6});
  expect(kKeyNorm, "self_attn.k_norm.weight", {6});
  expect(kInputNorm, "input_layernorm.weight", {24});
  expect(kAttentionOutNorm, "post_attention_layernorm.weight", {24});
  expect(kFeedForwardNorm, "pre_feedforward_layernorm.weight", {24});
  expect(kFeedForwardOutNorm, "post_feedforward_layernorm.weight", {24});
  expect(kGateBias, "mlp.gate_proj.bias", {20});
  expect(kUpBias, "mlp.up_proj.bias", {20});
  expect(kDownBias, "mlp.down_proj.bias", {24});
  EXPECT_EQ(table.units[4].rows[kFinalNorm].initial_value, 0);

  int64_t total = 0;
  for (const ParamUnit& unit : table.units)
    for (const ParamRow& r : unit.rows) total += r.num_elements;
  EXPECT_EQ(total, config.num_parameters());
}

TEST(Params, PartsOfAFusedTensorFollowEachOther) {
  ModelConfig config = Config(true);
  config.hidden_size = 25;  // so that parts end anywhere
  config.fused_projections = true;
  const ParamTable table = MakeParamTable(config);
  const ParamUnit& unit = table.units[1];
  const auto row = ByBlockParam(BlockParams(config), std::span<const ParamRow>(unit.rows));
  EXPECT_EQ(row[kKeyProj].offset, row[kQueryProj].offset + 36 * 25);
  EXPECT_EQ(row[kValueProj].offset, row[kKeyProj].offset + 12 * 25);
  EXPECT_EQ(row[kUpProj].offset, row[kGateProj].offset + 20 * 25);
  const std::pair<const char*, std::vector<int64_t>> stored[] = {
      {"input_layernorm.weight", {25}},      {"self_attn.qkv_proj.weight", {60, 25}},
      {"self_attn.o_proj.weight", {25, 36}}, {"post_attention_layernorm.weight", {25}},
      {"mlp.gate_up_proj.weight", {40, 25}}, {"mlp.down_proj.weight", {25, 20}},
  };
  ASSERT_EQ(unit.stored.size(), std::size(stored));
  for (size_t i = 0; i < std::size(stored); ++i) {
    EXPECT_EQ(unit.stored[i].name, std::string("model.layers.0.") + stored[i].first);
    EXPECT_EQ(unit.stored[i].shape, stored[i].second);
    EXPECT_EQ(unit.stored[i].offset % kUnitAlignment, 0);
  }
  EXPECT_EQ(unit.stored[1].offset, row[kQueryProj].offset);
  const Buffer flat(DType::kFloat32, {unit.num_elements});
  EXPECT_EQ(StoredViews(unit, flat.tensor())[4].raw(), UnitViews(unit, flat.tensor())[6].raw());
}

TEST(Params, InitialValuesDependOnSeedNameAndElementAlone) {
  const ParamTable table = MakeParamTable(Config(false));
  const auto values = [](const ParamRow& row, uint64_t seed, int num_threads = 1) {
    Buffer buffer(DType::kFloat32, {row.num_elements});
    InitializeParam(row, 0.02, seed, num_threads, /*first=*/0, buffer.tensor());
    const float* data = buffer.tensor().data<float>();
    return std::vector<float>(data, data + row.num_elements);
  };
  const ParamRow& gate = table.units[1].rows[6];  // kGateProj
  EXPECT_EQ(values(gate, 7), values(gate, 7));
  EXPECT_NE(values(gate, 7), values(gate, 8));
  EXPECT_NE(values(gate, 7), values(table.units[2].rows[6], 7));
  ParamRow longer = gate;  // more elements of the same name begin with the same ones
  longer.num_elements *= 20;
  const std::vector<float> many = values(longer, 7), few = values(gate, 7);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  std::vector<float> part(many.size() / 3);  // some of them, from the middle
  InitializeParam(longer, 0.02, 7, 1, 123, Tensor(part.data(), DType::kFloat32, {std::ssize(part)}));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), many.begin() + 123));
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
