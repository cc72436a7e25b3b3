// What config.json says of each family: missing keys mean what transformers takes, both spellings agree, and
// what is not implemented is refused by name.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "model/config.h"
#include "model/families.h"
#include "support/expect_error.h"

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;
using testing::ExpectError;

// Only what has no default, and some keys replaced or added (null stays null).
std::string Text(const std::string& model_type, const std::string& changes = "{}") {
  Json json = {{"model_type", model_type}, {"hidden_size", 192},        {"intermediate_size", 64},
               {"num_hidden_layers", 6},   {"num_attention_heads", 32}, {"vocab_size", 50}};
  const Json changed = Json::parse(changes);
  for (const auto& [key, value] : changed.items()) json[key] = value;
  return json.dump();
}

ModelConfig Parse(const std::string& model_type, const std::string& changes = "{}") {
  return ParseModelConfig(Text(model_type, changes), "config.json");
}

void ExpectRefused(const std::string& model_type, const std::string& changes,
                   std::initializer_list<std::string_view> parts) {
  SCOPED_TRACE(model_type + " " + changes);
  ExpectError(parts, [&] { Parse(model_type, changes); });
}

std::vector<int64_t> Windows(const ModelConfig& config) {
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    windows.push_back(config.layer_kind(layer).sliding_window);
  return windows;
}

// Printed by transformers 5.24 for AutoConfig.for_model of each with the six keys above.
TEST(FamilyConfig, MissingKeysAreTransformersDefaults) {
  const std::vector<int64_t> none(6, 0), all(6, 4096);
  const struct {
    const char* model_type;
    int64_t kv_heads, head_dim, positions;
    float epsilon;
    bool tied;
    GateActivation activation;
    std::vector<int64_t> windows;
  } families[] = {
      {"llama", 32, 6, 2048, 1e-6f, false, GateActivation::kSilu, none},
      {"mistral", 8, 6, 131072, 1e-6f, false, GateActivation::kSilu, all},
      {"qwen2", 32, 6, 32768, 1e-6f, false, GateActivation::kSilu, none},
      {"qwen3", 32, 128, 32768, 1e-6f, false, GateActivation::kSilu, none},
      {"gemma2", 4, 256, 8192, 1e-6f, true, GateActivation::kGeluTanh, {4096, 0, 4096, 0, 4096, 0}},
      {"gemma3_text",
       4,
       256,
       131072,
       1e-6f,
       true,
       GateActivation::kGeluTanh,
       {4096, 4096, 4096, 4096, 4096, 0}},
      {"phi3", 32, 6, 4096, 1e-5f, false, GateActivation::kSilu, none},
  };
  ASSERT_EQ(std::size(families), ModelFamilies().size());
  for (const auto& wanted : families) {
    SCOPED_TRACE(wanted.model_type);
    const ModelConfig config = Parse(wanted.model_type);
    EXPECT_EQ(config.model_type, wanted.model_type);
    EXPECT_EQ(config.num_key_value_heads, wanted.kv_heads);
    EXPECT_EQ(config.head_dim, wanted.head_dim);
    EXPECT_EQ(config.max_position_embeddings, wanted.positions);
    EXPECT_EQ(config.rms_norm_eps, wanted.epsilon);
    EXPECT_EQ(config.tie_word_embeddings, wanted.tied);
    EXPECT_EQ(config.gate_activation, wanted.activation);
    EXPECT_EQ(config.initializer_range, 0.02);
    EXPECT_EQ(Windows(config), wanted.windows);
    EXPECT_EQ(config.layer_kinds.size(), wanted.model_type[0] == 'g' ? 2u : 1u);
    for (const LayerKind& kind : config.layer_kinds) {
      EXPECT_EQ(kind.name, kind.sliding_window > 0 ? "sliding_attention" : "full_attention");
      EXPECT_EQ(kind.rope.kind, RopeConfig::Kind::kDefault);
      const bool global = config.model_type == "gemma3_text" && kind.sliding_window == 0;
      EXPECT_EQ(kind.rope.theta, global ? 1e6 : 1e4);
    }
  }
}

TEST(FamilyConfig, WhatEachComputes) {
  const auto gemma = [](const ModelConfig& config) {
    return config.sandwich_norms && config.norm_offset == 1 && config.embedding_scale == std::sqrt(192.0) &&
           config.attention_scale == 1.0 / 16;
  };
  for (const ModelFamily& family : ModelFamilies()) {
    const std::string type(family.model_type);
    SCOPED_TRACE(type);
    const ModelConfig config = Parse(type);
    EXPECT_EQ(config.query_key_value_bias, type == "qwen2");
    EXPECT_FALSE(config.out_proj_bias);
    EXPECT_FALSE(config.mlp_bias);
    EXPECT_EQ(config.query_key_norm, type == "qwen3" || type == "gemma3_text");
    EXPECT_EQ(config.fused_projections, type == "phi3");
    EXPECT_EQ(config.attention_soft_cap, type == "gemma2" ? 50 : 0);
    EXPECT_EQ(config.final_soft_cap, type == "gemma2" ? 30 : 0);
    EXPECT_EQ(gemma(config), type.starts_with("gemma"));
    if (!type.starts_with("gemma")) {
      EXPECT_EQ(config.norm_offset, 0);
      EXPECT_EQ(config.embedding_scale, 1);
      EXPECT_EQ(config.attention_scale, 1 / std::sqrt(static_cast<double>(config.head_dim)));
      EXPECT_FALSE(config.sandwich_norms);
    }
  }
  for (const char* type : {"llama", "qwen3", "gemma2", "gemma3_text"}) {
    const ModelConfig config = Parse(type, R"({"attention_bias": true})");
    EXPECT_TRUE(config.query_key_value_bias && config.out_proj_bias) << type;
  }
  EXPECT_TRUE(Parse("llama", R"({"mlp_bias": true})").mlp_bias);
  EXPECT_EQ(Parse("llama", R"({"hidden_act": "gelu_pytorch_tanh"})").gate_activation,
            GateActivation::kGeluTanh);
  EXPECT_EQ(Parse("gemma2", R"({"query_pre_attn_scalar": 144})").attention_scale, 1.0 / 12);
  EXPECT_EQ(Parse("gemma2", R"({"attn_logit_softcapping": null})").attention_soft_cap, 0);
  EXPECT_EQ(Parse("gemma2", R"({"final_logit_softcapping": 5})").final_soft_cap, 5);
  EXPECT_EQ(Parse("gemma3_text", R"({"final_logit_softcapping": 5})").final_soft_cap, 5);
}

// The configs of published models, and how many parameters transformers makes of them.
TEST(FamilyConfig, PublishedModels) {
  const struct {
    const char* name;
    int64_t num_parameters;
    const char* config;
  } models[] = {
      {"Mistral 7B", 7241732096,
       R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
          "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
          "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
          "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta":
          10000.0, "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "use_cache": true, "vocab_size": 32000})"},
      {"Qwen2.5 0.5B", 494032768,
       R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
          "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
          "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
          "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
          "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window":
          32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "use_mrope":
          false, "use_sliding_window": false, "vocab_size": 151936})"},
      {"Qwen3 0.6B", 596049920,
       R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
          "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
          "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
          "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps":
          1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
          "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
          "use_sliding_window": false, "vocab_size": 151936})"},
      {"Gemma 2 2B", 2614341888,
       R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid",
          "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act":
          "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
          "initializer_range": 0.02, "intermediate_size": 9216, "max_position_embeddings": 8192,
          "model_type": "gemma2", "num_attention_heads": 8, "num_hidden_layers": 26,
          "num_key_value_heads": 4, "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps":
          1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32", "use_cache":
          true, "vocab_size": 256000})"},
      {"Gemma 3 1B", 999885952,
       R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
          "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
          "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
          "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
          "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id":
          0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
          "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern":
          6, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 262144})"},
      {"Phi-3 mini 4k", 3821079552,
       R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "auto_map":
          {"AutoConfig": "configuration_phi3.Phi3Config"}, "bos_token_id": 1, "embd_pdrop": 0.0,
          "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
          "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3",
          "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
          "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
          "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 2047,
          "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size":
          32064})"},
  };
  for (const auto& model : models)
    EXPECT_EQ(ParseModelConfig(model.config, model.name).num_parameters(), model.num_parameters)
        << model.name;
}

// The row that torch's nn.Embedding gives no gradient.
TEST(FamilyConfig, PadToken) {
  EXPECT_EQ(Parse("llama").pad_token_id, -1);
  EXPECT_EQ(Parse("gemma2").pad_token_id, 0);
  EXPECT_EQ(Parse("gemma3_text", R"({"pad_token_id": null})").pad_token_id, -1);
  EXPECT_EQ(Parse("phi3").pad_token_id, -1);  // 32000 is no id of 50
  EXPECT_EQ(Parse("phi3", R"({"vocab_size": 32001})").pad_token_id, 32000);
  EXPECT_EQ(Parse("llama", R"({"pad_token_id": 49})").pad_token_id, 49);
  EXPECT_EQ(Parse("llama", R"({"pad_token_id": -1})").pad_token_id, 49);
  EXPECT_EQ(Parse("llama", R"({"pad_token_id": -50})").pad_token_id, 0);
  for (const char* bad : {"50", "-51", "1.5", "\"2\"", "18446744073709551615"})
    ExpectRefused("llama", fmt::format(R"({{"pad_token_id": {}}})", bad),
                  {"pad_token_id is", "null or an id below vocab_size 50"});
}

TEST(FamilyConfig, WindowsOfLayers) {
  const auto windows = [](const char* type, const std::string& changes) {
    return Windows(Parse(type, changes));
  };
  using W = std::vector<int64_t>;
  EXPECT_EQ(windows("mistral", R"({"sliding_window": 7})"), W(6, 7));
  EXPECT_EQ(windows("mistral", R"({"sliding_window": null})"), W(6, 0));
  EXPECT_EQ(windows("phi3", R"({"sliding_window": 7})"), W(6, 7));
  EXPECT_EQ(windows("qwen2", R"({"sliding_window": 7, "max_window_layers": 0})"), W(6, 0));
  const std::string used = R"("sliding_window": 7, "use_sliding_window": true)";
  for (const char* qwen : {"qwen2", "qwen3"}) {
    EXPECT_EQ(windows(qwen, "{" + used + "}"), W(6, 0));  // from layer 28 on
    EXPECT_EQ(windows(qwen, "{" + used + R"(, "max_window_layers": 4})"), (W{0, 0, 0, 0, 7, 7}));
    EXPECT_EQ(windows(qwen, "{" + used + R"(, "max_window_layers": 0})"), W(6, 7));
    EXPECT_EQ(
        windows(qwen, R"({"use_sliding_window": true, "sliding_window": null, "max_window_layers": 4})"),
        W(6, 0));
  }
  EXPECT_EQ(windows("gemma3_text", R"({"sliding_window": 7, "sliding_window_pattern": 2})"),
            (W{7, 0, 7, 0, 7, 0}));
  const std::string types = R"("layer_types": ["full_attention", "sliding_attention", "full_attention",
                               "full_attention", "sliding_attention", "full_attention"])";
  const W wanted = {0, 7, 0, 0, 7, 0};
  EXPECT_EQ(windows("gemma2", "{" + types + R"(, "sliding_window": 7})"), wanted);
  EXPECT_EQ(windows("gemma3_text", "{" + types + R"(, "sliding_window": 7, "sliding_window_pattern": 3})"),
            wanted);
  EXPECT_EQ(windows("qwen2", "{" + types + ", " + used + "}"), wanted);

  ModelConfig cut = Parse("gemma3_text");
  cut.SetNumLayers(3);
  EXPECT_EQ(Windows(cut), (W{4096, 4096, 4096}));
  cut = Parse("gemma2");
  cut.SetNumLayers(9);
  EXPECT_EQ(Windows(cut), (W{4096, 0, 4096, 0, 4096, 0, 4096, 0, 4096}));
}

// One embedding in every spelling.
TEST(FamilyConfig, SpellingsOfRopeAgree) {
  const char* yarn = R"("factor": 4.0, "original_max_position_embeddings": 1024, "beta_fast": 16)";
  const auto with = [&](const char* format) {
    return Parse("qwen3", fmt::format(fmt::runtime(format), yarn));
  };
  const ModelConfig old = with(
      R"({{"rope_theta": 5e5, "rope_scaling": {{"rope_type": "yarn", {}}}, "torch_dtype": "bfloat16"}})");
  const RopeConfig& rope = old.layer_kinds[0].rope;
  EXPECT_EQ(rope.kind, RopeConfig::Kind::kYarn);
  EXPECT_EQ(rope.theta, 5e5);
  EXPECT_EQ(rope.factor, 4);
  EXPECT_EQ(rope.original_max_position_embeddings, 1024);
  EXPECT_EQ(rope.beta_fast, 16);
  EXPECT_EQ(rope.beta_slow, 1);
  EXPECT_TRUE(rope.truncate);
  EXPECT_DOUBLE_EQ(rope.attention_factor, 1.138629436111989);
  EXPECT_EQ(with(R"({{"rope_theta": 5e5, "rope_scaling": {{"type": "yarn", {}}}}})"), old);
  EXPECT_EQ(
      with(R"({{"rope_parameters": {{"rope_type": "yarn", "rope_theta": 5e5, {}}}, "dtype": "bfloat16"}})"),
      old);

  const ModelConfig gemma = Parse("gemma3_text", R"({"rope_theta": 2e6, "rope_local_base_freq": 5e3,
                               "rope_scaling": {"rope_type": "linear", "factor": 8}})");
  ASSERT_EQ(gemma.layer_kinds.size(), 2u);
  EXPECT_EQ(gemma.layer_kinds[0].rope, (RopeConfig{.theta = 5e3}));
  EXPECT_EQ(gemma.layer_kinds[1].rope,
            (RopeConfig{.kind = RopeConfig::Kind::kLinear, .theta = 2e6, .factor = 8}));
  EXPECT_EQ(gemma, Parse("gemma3_text", R"({"rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 2e6},
      "sliding_attention": {"rope_type": "default", "rope_theta": 5e3}}})"));
  // In rope_scaling, transformers passes over the type of this family: it only may repeat rope_type.
  EXPECT_EQ(
      Parse("gemma3_text", R"({"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 8}})"),
      Parse("gemma3_text", R"({"rope_scaling": {"rope_type": "linear", "factor": 8}})"));
  EXPECT_EQ(Parse("gemma3_text", R"({"rope_scaling": {"type": "default"}})"), Parse("gemma3_text"));
  const char* nested = R"({{"rope_parameters": {{"full_attention": {{"{}": "linear", "factor": 8}}}}}})";
  EXPECT_EQ(Parse("gemma3_text", fmt::format(fmt::runtime(nested), "type")),
            Parse("gemma3_text", fmt::format(fmt::runtime(nested), "rope_type")));
  // What is missing has the defaults of its own type.
  EXPECT_EQ(Parse("gemma3_text", R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})"),
            Parse("gemma3_text"));
}

TEST(FamilyConfig, ParametersOfYarn) {
  const auto rope = [](const std::string& fields) {
    return Parse("llama", R"({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "yarn", )" +
                              fields + "}}")
        .layer_kinds[0]
        .rope;
  };
  EXPECT_EQ(rope(R"("factor": 2)").original_max_position_embeddings, 4096);
  EXPECT_EQ(rope(R"("factor": null, "original_max_position_embeddings": 1024)").factor, 4);
  EXPECT_EQ(rope(R"("factor": 4, "attention_factor": 1.5)").attention_factor, 1.5);
  EXPECT_EQ(rope(R"("factor": 1)").attention_factor, 1);
  EXPECT_DOUBLE_EQ(rope(R"("factor": 8, "mscale": 2, "mscale_all_dim": 0.5)").attention_factor,
                   1.2825399643040467);
  EXPECT_DOUBLE_EQ(rope(R"("factor": 8, "mscale": 2)").attention_factor, 0.1 * std::log(8) + 1);
  EXPECT_TRUE(rope(R"("factor": 8)").truncate);
  EXPECT_TRUE(rope(R"("factor": 8, "truncate": true)").truncate);
  EXPECT_FALSE(rope(R"("factor": 8, "truncate": false)").truncate);
  EXPECT_FALSE(rope(R"("factor": 8, "truncate": null)").truncate);  // to Python
  EXPECT_EQ(rope(R"("factor": 8, "beta_fast": 0, "beta_slow": null)").beta_fast, 32);
}

TEST(FamilyConfig, ParametersOfLongRope) {
  const std::string factors = R"("short_factor": [1, 1.5, 2], "long_factor": [1, 3, 9])";
  const auto rope = [&](const char* type, const std::string& outside, const std::string& fields) {
    return Parse(type, "{" + outside + R"("rope_scaling": {"type": "longrope", )" + factors + fields + "}}")
        .layer_kinds[0]
        .rope;
  };
  const RopeConfig phi = rope("phi3", R"("max_position_embeddings": 131072, )", "");
  EXPECT_EQ(phi.original_max_position_embeddings, 4096);
  EXPECT_EQ(phi.short_factor, (std::vector<double>{1, 1.5, 2}));
  EXPECT_EQ(phi.long_factor, (std::vector<double>{1, 3, 9}));
  EXPECT_DOUBLE_EQ(phi.attention_factor, std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
  EXPECT_EQ(rope("phi3", R"("original_max_position_embeddings": 512, )", "").original_max_position_embeddings,
            512);
  EXPECT_EQ(
      rope("llama", "", R"(, "original_max_position_embeddings": 512)").original_max_position_embeddings,
      512);
  EXPECT_EQ(rope("llama", "", R"(, "attention_factor": 1.25)").attention_factor, 1.25);
  EXPECT_DOUBLE_EQ(rope("llama", "", R"(, "factor": 4)").attention_factor,
                   std::sqrt(1 + std::log(4.0) / std::log(2048.0)));
  // "su" is an earlier name.
  EXPECT_EQ(Parse("phi3", R"({"rope_scaling": {"type": "su", )" + factors + "}}"),
            Parse("phi3", R"({"rope_scaling": {"type": "longrope", )" + factors + "}}"));

  // Part of a head.
  const char* part = R"({"head_dim": 8, "partial_rotary_factor": 0.75, "rope_scaling": {"type": "longrope",
                         "short_factor": [1, 1, 1], "long_factor": [2, 2, 2]}})";
  EXPECT_EQ(Parse("phi3", part).layer_kinds[0].rope.rotary_dim(8), 6);
}

TEST(FamilyConfig, RefusesByName) {
  ExpectRefused("gemma3", "{}", {"model_type 'gemma3' is not implemented", "gemma3_text"});
  ExpectRefused("qwen2", R"({"architectures": ["LlamaForCausalLM"]})",
                {"LlamaForCausalLM", "Qwen2ForCausalLM"});
  ExpectRefused("qwen2", R"({"attention_bias": false})",
                {"attention_bias false", "for qwen2", "supported: true"});
  ExpectRefused("mistral", R"({"attention_bias": true})", {"attention_bias true", "for mistral"});
  ExpectRefused("mistral", R"({"mlp_bias": true})", {"mlp_bias true"});
  ExpectRefused("llama", R"({"sliding_window": 8})", {"sliding_window 8", "for llama"});
  ExpectRefused("mistral", R"({"use_sliding_window": true})", {"use_sliding_window true"});
  ExpectRefused("mistral", R"({"final_logit_softcapping": 8})", {"final_logit_softcapping 8"});
  ExpectRefused("gemma3_text", R"({"attn_logit_softcapping": 8})", {"attn_logit_softcapping 8"});
  ExpectRefused("gemma3_text", R"({"use_bidirectional_attention": true})", {"use_bidirectional_attention"});
  ExpectRefused("gemma2", R"({"hidden_activation": "gelu"})", {"hidden_activation \"gelu\""});
  ExpectRefused("gemma2", R"({"hidden_act": "gelu"})", {"hidden_act is \"gelu\"", "make them equal"});
  ExpectRefused("phi3", R"({"resid_pdrop": 0.1})", {"resid_pdrop 0.1"});
  ExpectRefused("qwen3", R"({"num_experts": 8})", {"num_experts 8"});

  ExpectRefused("gemma2", R"({"sliding_window": null})", {"sliding_attention", "no sliding_window"});
  ExpectRefused("gemma2", R"({"layer_types": ["full_attention"]})", {"layer_types", "6 layer types"});
  const char* sliding = R"({"layer_types": ["sliding_attention", "full_attention", "full_attention",
                            "full_attention", "full_attention", "full_attention"]})";
  ExpectRefused("qwen2", sliding, {"sliding_attention", "no sliding_window in use"});
  ExpectRefused("mistral", sliding, {"layer_types", "for mistral", "all \"sliding_attention\""});

  ExpectRefused("phi3", R"({"rope_scaling": {"rope_type": "yarn", "factor": 2}})",
                {"'yarn'", "for phi3", "default, longrope"});
  ExpectRefused("llama", R"({"rope_scaling": {"type": "su"}})", {"'su'"});
  ExpectRefused("llama", R"({"partial_rotary_factor": 0.5})", {"partial_rotary_factor 0.5", "for llama"});
  ExpectRefused("phi3", R"({"partial_rotary_factor": 0.5})", {"rotates 3 of the 6"});
  ExpectRefused("phi3",
                R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1, 1]}})",
                {"short_factor", "3 positive numbers"});
  ExpectRefused("phi3", R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1]}})",
                {"'long_factor' is missing"});
  ExpectRefused("llama", R"({"rope_scaling": {"type": "yarn"}})", {"'factor' is missing"});
  ExpectRefused("llama", R"({"rope_scaling": {"type": "yarn", "factor": 0.5}})", {"factor is 0.5"});
  ExpectRefused("llama", R"({"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2}})",
                {"beta_fast 1", "beta_slow 2"});
  ExpectRefused("llama", R"({"rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 2}})",
                {"rope_theta is 1"});
  ExpectRefused("llama",
                R"({"original_max_position_embeddings": 7, "rope_scaling": {"type": "yarn", "factor": 2,
                             "original_max_position_embeddings": 8}})",
                {"original_max_position_embeddings is 8", "7 outside"});
  ExpectRefused("gemma3_text", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 5}})",
                {"rope_parameters: key 'rope_type'", "full_attention"});
  ExpectRefused("gemma2", R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})",
                {"'full_attention'"});
  ExpectRefused("gemma3_text", R"({"rope_scaling": {"rope_type": "yarn", "factor": 2, "truncate": false}})",
                {"truncate false"});
  ExpectRefused("gemma3_text", R"({"rope_scaling": {"rope_type": "yarn", "factor": 2, "truncate": null}})",
                {"truncate false or null"});
  for (const char* without : {"", R"(, "rope_type": null)"})
    ExpectRefused("gemma3_text",
                  fmt::format(R"({{"rope_scaling": {{"type": "linear", "factor": 8{}}}}})", without),
                  {"rope_scaling", "type is 'linear'", "for gemma3_text", "write rope_type"});
}

// The golden models' configs, in both spellings, as they are written without and with their source.
TEST(FamilyConfig, WritingComesBackEqual) {
  const std::string directory = LONGSPAN_SOURCE_DIR "/tests/golden/families/";
  int num_configs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path());
    const std::string text = ReadTextFile(entry.path() / "config.json");
    const ModelConfig config = ParseModelConfig(text, "config.json");
    const std::string written = WriteModelConfig(config, "", DType::kFloat32);
    EXPECT_EQ(ParseModelConfig(written, "written"), config) << written;
    Json wanted = Json::parse(text);
    wanted[wanted.contains("dtype") ? "dtype" : "torch_dtype"] = "float32";
    EXPECT_EQ(WriteModelConfig(config, text, DType::kFloat32), wanted.dump(2) + "\n");
    ++num_configs;
  }
  EXPECT_GE(num_configs, 14);
}

}  // namespace
}  // namespace longspan
