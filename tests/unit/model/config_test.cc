#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/check.h"

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;

// As transformers 4.41 wrote it for a 656K-parameter model of TinyStories.
constexpr const char* kTinyStories = R"({
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 1,
  "eos_token_id": 2,
  "hidden_act": "silu",
  "hidden_size": 128,
  "initializer_range": 0.02,
  "intermediate_size": 384,
  "max_position_embeddings": 512,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 8,
  "num_hidden_layers": 2,
  "num_key_value_heads": 4,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-06,
  "rope_scaling": null,
  "rope_theta": 10000.0,
  "tie_word_embeddings": true,
  "torch_dtype": "float32",
  "transformers_version": "4.41.2",
  "use_cache": true,
  "vocab_size": 2048
})";

// Only what has no default.
constexpr const char* kMinimal = R"({"model_type": "llama", "hidden_size": 96, "intermediate_size": 64,
  "num_attention_heads": 6, "num_hidden_layers": 3, "vocab_size": 50})";

// kMinimal with some keys replaced or added (null stays null).
std::string With(const char* changes) {
  Json json = Json::parse(kMinimal);
  const Json changed = Json::parse(changes);
  for (const auto& [key, value] : changed.items()) json[key] = value;
  return json.dump();
}

std::string ErrorOf(const std::string& text) {
  try {
    ParseModelConfig(text, "dir/config.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput);
    return e.what();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

TEST(Config, TinyStories) {
  const ModelConfig config = ParseModelConfig(kTinyStories, "config.json");
  ModelConfig wanted;
  wanted.vocab_size = 2048;
  wanted.hidden_size = 128;
  wanted.intermediate_size = 384;
  wanted.num_hidden_layers = 2;
  wanted.num_attention_heads = 8;
  wanted.num_key_value_heads = 4;
  wanted.head_dim = 16;
  wanted.max_position_embeddings = 512;
  wanted.rms_norm_eps = 1e-6f;
  wanted.layer_kind_of = {0, 0};
  wanted.attention_scale = 0.25;
  wanted.tie_word_embeddings = true;
  wanted.initializer_range = 0.02;
  EXPECT_EQ(config, wanted);
  EXPECT_EQ(config.num_parameters(), 2048 * 128 + 2 * (2 * 128 + 3 * 128 * 128 + 3 * 128 * 384) + 128);
}

TEST(Config, DefaultsAreTransformers) {
  for (const std::string& text :
       {std::string(kMinimal),
        With(R"({"head_dim": null, "num_key_value_heads": null, "rope_theta": null, "rms_norm_eps": null,
                 "tie_word_embeddings": null, "hidden_act": null, "rope_scaling": null, "sliding_window": null})")}) {
    const ModelConfig config = ParseModelConfig(text, "config.json");
    EXPECT_EQ(config.num_key_value_heads, 6);
    EXPECT_EQ(config.head_dim, 16);
    EXPECT_EQ(config.max_position_embeddings, 2048);
    EXPECT_EQ(config.rms_norm_eps, 1e-6f);
    EXPECT_EQ(config.layer_kinds, (std::vector<LayerKind>{{.rope = {.theta = 10000}}}));
    EXPECT_EQ(config.layer_kind_of, (std::vector<int>{0, 0, 0}));
    EXPECT_FALSE(config.tie_word_embeddings);
    EXPECT_EQ(config.initializer_range, 0.02);
  }
  const std::string by_architecture = With(R"({"model_type": null, "architectures": ["LlamaForCausalLM"]})");
  EXPECT_EQ(ParseModelConfig(by_architecture, "config.json").hidden_size, 96);
}

TEST(Config, AllSpellingsOfRopeAgree) {
  const char* fields = R"("factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                          "original_max_position_embeddings": 8192)";
  const auto parse = [&](const std::string& text) {
    return ParseModelConfig(With(text.c_str()), "config.json");
  };
  const ModelConfig old =
      parse(fmt::format(R"({{"rope_theta": 5e5, "rope_scaling": {{"rope_type": "llama3", {}}}}})", fields));
  const RopeConfig wanted = {.kind = RopeConfig::Kind::kLlama3,
                             .theta = 5e5,
                             .factor = 8,
                             .low_freq_factor = 1,
                             .high_freq_factor = 4,
                             .original_max_position_embeddings = 8192};
  EXPECT_EQ(old.layer_kinds[0].rope, wanted);
  EXPECT_EQ(old,
            parse(fmt::format(R"({{"rope_theta": 5e5, "rope_scaling": {{"type": "llama3", {}}}}})", fields)));
  EXPECT_EQ(
      old,
      parse(fmt::format(
          R"({{"rope_parameters": {{"rope_type": "llama3", "rope_theta": 5e5, {}}}, "dtype": "bfloat16"}})",
          fields)));

  ModelConfig plain = parse(R"({"rope_parameters": {"rope_theta": 1234, "rope_type": "default"}})");
  EXPECT_EQ(plain.layer_kinds[0].rope.theta, 1234);
  EXPECT_EQ(plain, parse(R"({"rope_theta": 1234, "rope_scaling": {"rope_type": "default"}})"));
  EXPECT_EQ(plain, parse(R"({"rope_theta": 1234})"));
}

TEST(Config, RefusesWhatIsNotImplementedByName) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {R"({"model_type": "mixtral"})",
       {"model_type 'mixtral'", "supported: llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi3"}},
      {R"({"model_type": null})", {"neither model_type nor architectures"}},
      {R"({"architectures": ["LlamaForSequenceClassification"]})", {"LlamaForSequenceClassification"}},
      {R"({"hidden_act": "gelu"})", {"hidden_act \"gelu\"", "supported: \"silu\", \"gelu_pytorch_tanh\""}},
      {R"({"attention_dropout": 0.1})", {"attention_dropout 0.1", "supported: 0"}},
      {R"({"sliding_window": 4096})", {"sliding_window 4096", "supported: null"}},
      {R"({"quantization_config": {"bits": 4}})", {"quantization_config"}},
      {R"({"num_experts": 8})", {"num_experts 8"}},
      {R"({"num_local_experts": 8})", {"num_local_experts 8"}},
      {R"({"partial_rotary_factor": 0.5})", {"partial_rotary_factor 0.5", "supported: 1"}},
      {R"({"layer_types": ["full_attention", "sliding_attention"]})", {"sliding_attention"}},
      {R"({"layer_types": ["full_attention", "full_attention", "chunked_attention"]})",
       {"chunked_attention"}},
      {R"({"query_pre_attn_scalar": 64})", {"query_pre_attn_scalar 64 is not implemented for llama"}},
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
       {"rope_scaling", "'dynamic'", "default, linear, llama3, yarn, longrope"}},
      {R"({"rope_parameters": {"rope_type": "proportional"}})", {"rope_parameters", "'proportional'"}},
      {R"({"rope_scaling": {"type": "linear", "factor": 2, "beta_fast": 8}})",
       {"'beta_fast'", "rope_type linear"}},
      {R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})", {"'full_attention'"}},
      {R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}})", {"0.25"}},
  };
  for (const auto& [changes, wanted] : cases) {
    const std::string message = ErrorOf(With(changes));
    EXPECT_NE(message.find("dir/config.json"), std::string::npos) << message;
    for (const char* part : wanted) EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_NO_THROW(ParseModelConfig(
      With(
          R"({"pretraining_tp": 2, "attention_dropout": 0.0, "partial_rotary_factor": 1.0, "num_experts": 0})"),
      "config.json"));
}

TEST(Config, RefusesBadInputNamingTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"hidden_size": "96"})", "hidden_size is \"96\""},
      {R"({"hidden_size": 96.0})", "hidden_size is 96.0"},
      {R"({"hidden_size": 0})", "hidden_size is 0"},
      {R"({"hidden_size": null})", "'hidden_size' is missing"},
      {R"({"num_hidden_layers": -2})", "num_hidden_layers is -2"},
      {R"({"intermediate_size": 18446744073709551615})", "intermediate_size is 18446744073709551615"},
      {R"({"vocab_size": 2147483648})", "vocab_size is 2147483648"},
      {R"({"vocab_size": true})", "vocab_size is true"},
      {R"({"num_key_value_heads": 4})", "num_attention_heads 6 is not a multiple of num_key_value_heads 4"},
      {R"({"num_attention_heads": 5})", "hidden_size 96 is not a multiple of num_attention_heads 5"},
      {R"({"head_dim": 15})", "head_dim 15 is odd"},
      {R"({"tie_word_embeddings": 1})", "tie_word_embeddings is 1"},
      {R"({"rms_norm_eps": -1e-5})", "rms_norm_eps is -1e-05"},
      {R"({"rms_norm_eps": 1e300})", "rms_norm_eps is 1e+300"},
      {R"({"rope_theta": 0})", "rope_theta is 0"},
      {R"({"model_type": 3})", "model_type is 3"},
      {R"({"rope_scaling": 8})", "rope_scaling is 8"},
      {R"({"rope_scaling": {"factor": 8}})", "rope_type is missing"},
      {R"({"rope_scaling": {"type": "llama3", "rope_type": "default"}})",
       "type is 'llama3' but rope_type is 'default'"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})", "'low_freq_factor' is missing"},
      {R"({"rope_scaling": {"rope_type": "default"}, "rope_parameters": {"rope_type": "default"}})", "both"},
      {R"({"rope_theta": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 2}})",
       "rope_theta is 2"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
           "original_max_position_embeddings": 8192}})",
       "high_freq_factor 4 must exceed low_freq_factor 4"},
  };
  for (const auto& [changes, wanted] : cases) {
    const std::string message = ErrorOf(With(changes));
    EXPECT_NE(message.find("dir/config.json"), std::string::npos) << message;
    EXPECT_NE(message.find(wanted), std::string::npos) << message;
  }
  EXPECT_NE(ErrorOf("{").find("not valid JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("[1]").find("not a JSON object but array"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"hidden_size": 1, "hidden_size": 2})").find("'hidden_size' is given twice"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"rope_scaling": {"factor": 1, "factor": 2}})").find("'factor' is given twice"),
            std::string::npos);
  // The same key in two objects is fine.
  EXPECT_NO_THROW(ParseModelConfig(With(R"({"a": {"x": 1}, "b": {"x": 1}})"), "config.json"));
}

TEST(Config, WritingKeepsEveryKeyAndItsSpelling) {
  const ModelConfig config = ParseModelConfig(kTinyStories, "config.json");
  Json wanted = Json::parse(kTinyStories);
  wanted["torch_dtype"] = "bfloat16";
  EXPECT_EQ(WriteModelConfig(config, kTinyStories, DType::kBFloat16), wanted.dump(2) + "\n");

  const std::string newer =
      With(R"({"dtype": "float16", "rope_parameters": {"rope_type": "default", "rope_theta": 7}})");
  wanted = Json::parse(newer);
  wanted["dtype"] = "float32";
  EXPECT_EQ(WriteModelConfig(ParseModelConfig(newer, "c"), newer, DType::kFloat32), wanted.dump(2) + "\n");
}

TEST(Config, AnotherDTypeOfAnyModel) {
  EXPECT_EQ(
      WithDType(R"({"z": 1, "model_type": "unheard_of", "a": [1]})", DType::kFloat32, "c"),
      Json::parse(R"({"z": 1, "model_type": "unheard_of", "a": [1], "dtype": "float32"})").dump(2) + "\n");
  EXPECT_EQ(Json::parse(WithDType(R"({"dtype": null, "torch_dtype": "float16"})", DType::kBFloat16, "c")),
            Json::parse(R"({"dtype": "bfloat16", "torch_dtype": "bfloat16"})"));
  EXPECT_NO_THROW(WithDType(R"({"quantization_config": null})", DType::kFloat32, "c"));
  for (const char* text :
       {R"({"quantization_config": {}})", R"({"compression_config": {"a": 1}})", "[]", "{"})
    EXPECT_THROW(WithDType(text, DType::kFloat32, "c"), Error) << text;
}

TEST(Config, WritingWithoutASourceComesBackEqual) {
  for (std::string_view name : BuiltinModelNames()) {
    const ModelConfig config = ParseModelConfig(BuiltinModelJson(name), std::string(name));
    const std::string text = WriteModelConfig(config, "", DType::kFloat32);
    EXPECT_EQ(ParseModelConfig(text, "written"), config) << name;
    EXPECT_NE(text.find("\"rms_norm_eps\": 1e-05"), std::string::npos) << text;
    EXPECT_NE(text.find("\"dtype\": \"float32\""), std::string::npos) << text;
  }
}

TEST(Config, BuiltinModels) {
  EXPECT_EQ(BuiltinModelNames().size(), 9u);
  EXPECT_TRUE(BuiltinModelJson("llama4").empty());
  const auto config = [](std::string_view name) {
    return ParseModelConfig(BuiltinModelJson(name), std::string(name));
  };
  // As published: 8.03e9, 70.6e9, 1.24e9 and 134.5e6 parameters.
  EXPECT_EQ(config("llama3.1-8b").num_parameters(), 8030261248);
  EXPECT_EQ(config("llama3.1-70b").num_parameters(), 70553706496);
  EXPECT_EQ(config("llama3.2-1b").num_parameters(), 1235814400);
  EXPECT_EQ(config("smollm2-135m").num_parameters(), 134515008);
  EXPECT_EQ(config("100m").num_parameters(), 100092672);
  EXPECT_EQ(config("tiny").num_parameters(),
            2 * 256 * 128 + 2 * (2 * 128 + 3 * 128 * 128 + 3 * 128 * 384) + 128);
  EXPECT_EQ(config("tiny-4-layers").num_parameters(),
            2 * 256 * 128 + 4 * (2 * 128 + 3 * 128 * 128 + 3 * 128 * 384) + 128);
  EXPECT_EQ(config("tiny-one-head").num_parameters(),
            2 * 256 * 64 + 2 * (2 * 64 + 4 * 64 * 64 + 3 * 64 * 192) + 64);

  ModelConfig wide = config("llama3.1-8b");  // the same but for its heads
  wide.num_attention_heads = 16;
  wide.num_key_value_heads = 4;
  wide.head_dim = 256;
  wide.attention_scale = 1.0 / 16;
  EXPECT_EQ(config("llama3.1-8b-16-4-256"), wide);
  EXPECT_EQ(wide.num_parameters(), config("llama3.1-8b").num_parameters());
}

}  // namespace
}  // namespace longspan
