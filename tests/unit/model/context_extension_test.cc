#include "model/context_extension.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/config.h"
#include "support/expect_error.h"

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;
using Kind = RopeConfig::Kind;
using testing::ExpectError;

// A config of 6 layers and 1,000 positions with some keys added.
std::string Text(const char* model_type, const char* added) {
  Json json = {{"model_type", model_type},
               {"hidden_size", 192},
               {"intermediate_size", 64},
               {"num_hidden_layers", 6},
               {"num_attention_heads", 32},
               {"vocab_size", 50},
               {"head_dim", 6},
               {"max_position_embeddings", 1000}};
  const Json keys = Json::parse(added);
  json.update(keys);
  return json.dump(2) + "\n";
}

RopeConfig RopeOf(const std::string& text, const std::string& layer_type = "full_attention") {
  for (const LayerKind& kind : ParseModelConfig(text, "config.json").layer_kinds)
    if (kind.name == layer_type) return kind.rope;
  ADD_FAILURE() << "no layer is of " << layer_type;
  return {};
}

TEST(ContextExtension, NothingGivenChangesNothing) {
  const std::string text = Text("llama", "{}") + " ";
  EXPECT_EQ(OverrideRope(text, "config.json", 0, {}), text);
  EXPECT_EQ(ExtendPositions(text, "config.json", 1000), text);
}

TEST(ContextExtension, OldSpellingStays) {
  const std::string text =
      Text("llama", R"({"rope_theta": 10000.0, "rope_scaling": null, "torch_dtype": "float32"})");
  Json wanted = Json::parse(text);
  wanted["rope_theta"] = 5e5;
  EXPECT_EQ(OverrideRope(text, "config.json", 5e5, {}), wanted.dump(2) + "\n");
  wanted["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4}};
  const std::string scaled =
      OverrideRope(text, "config.json", 5e5, {{"rope_type", "linear"}, {"factor", "4"}});
  EXPECT_EQ(scaled, wanted.dump(2) + "\n");
  EXPECT_EQ(RopeOf(scaled), (RopeConfig{.kind = Kind::kLinear, .theta = 5e5, .factor = 4}));
  EXPECT_EQ(OverrideRope(scaled, "config.json", 10000, {{"", "default"}}), text);
}

TEST(ContextExtension, NewSpellingStays) {
  const std::string text = Text(
      "qwen3", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 7000.0}, "dtype": "float32"})");
  Json wanted = Json::parse(text);
  wanted["rope_parameters"]["rope_theta"] = 5e5;
  EXPECT_EQ(OverrideRope(text, "config.json", 5e5, {}), wanted.dump(2) + "\n");
  const std::string scaled =
      OverrideRope(text, "config.json", 0, {{"rope_type", "yarn"}, {"factor", "4.5"}, {"truncate", "false"}});
  EXPECT_EQ(Json::parse(scaled)["rope_parameters"]["original_max_position_embeddings"], 1000);
  const RopeConfig rope = RopeOf(scaled);
  EXPECT_EQ(rope.kind, Kind::kYarn);
  EXPECT_EQ(rope.theta, 7000);
  EXPECT_EQ(rope.factor, 4.5);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(RopeOf(OverrideRope(scaled, "config.json", 0, {{"rope_type", "default"}})), RopeOf(text));

  // Where a config says nothing, its dtype tells.
  const Json bare =
      Json::parse(OverrideRope(Text("llama", R"({"dtype": "float32"})"), "config.json", 5e5, {}));
  EXPECT_EQ(bare["rope_parameters"]["rope_theta"], 5e5);
  EXPECT_FALSE(bare.contains("rope_theta"));
}

TEST(ContextExtension, OnlyFullAttentionWhereLayersDiffer) {
  const std::map<std::string, std::string> linear = {{"rope_type", "linear"}, {"factor", "8"}};
  const RopeConfig wanted = {.kind = Kind::kLinear, .theta = 5e6, .factor = 8};
  for (const char* added :
       {R"({"rope_theta": 1e6, "rope_local_base_freq": 3e3})",
        R"({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 3e3}}})",
        R"({"rope_parameters": {"sliding_attention": {"rope_theta": 3e3}}})"}) {
    SCOPED_TRACE(added);
    const std::string changed = OverrideRope(Text("gemma3_text", added), "config.json", 5e6, linear);
    EXPECT_EQ(RopeOf(changed), wanted) << changed;
    EXPECT_EQ(RopeOf(changed, "sliding_attention"), (RopeConfig{.theta = 3e3})) << changed;
  }
  ExpectError(
      {"no layer is of full_attention"},
      [&] { OverrideRope(Text("gemma3_text", R"({"num_hidden_layers": 5})"), "config.json", 5e6, {}); },
      ExitCode::kUsage);
  // Layers that share one embedding change together.
  EXPECT_EQ(RopeOf(OverrideRope(Text("gemma2", "{}"), "c", 5e6, linear), "sliding_attention"), wanted);
}

TEST(ContextExtension, RefusesLikeAConfig) {
  const auto refused = [](const char* type, std::map<std::string, std::string> scaling,
                          std::initializer_list<std::string_view> parts) {
    ExpectError(
        parts, [&] { OverrideRope(Text(type, "{}"), "config.json", 0, scaling); }, ExitCode::kUsage);
  };
  refused("llama", {{"factor", "4"}}, {"rope_scaling names no rope_type", "yarn"});
  refused("llama", {{"rope_type", "dynamic"}, {"factor", "4"}}, {"rope_scaling", "were given", "'dynamic'"});
  refused("llama", {{"rope_type", "yarn"}}, {"'factor' is missing"});
  refused("llama", {{"rope_type", "yarn"}, {"factor", "four"}}, {"factor is \"four\""});
  refused("llama", {{"rope_type", "linear"}, {"factor", "4"}, {"beta", "4"}}, {"'beta'"});
  refused("phi3", {{"rope_type", "yarn"}, {"factor", "4"}}, {"'yarn'", "for phi3"});
}

// More positions, and everything else as it was: what would be derived from them is written down.
TEST(ContextExtension, MorePositions) {
  const char* configs[][2] = {
      {"llama", "{}"},
      {"llama", R"({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}})"},
      {"llama", R"({"rope_parameters": {"rope_type": "yarn", "factor": null,
                    "original_max_position_embeddings": 250}})"},
      {"llama",
       R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}})"},
      {"phi3", R"({"original_max_position_embeddings": 200, "rope_scaling": {"type": "longrope",
                   "short_factor": [1, 1, 1], "long_factor": [1, 2, 3]}})"},
      {"gemma3_text", R"({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0}}})"},
  };
  for (const auto& [type, added] : configs) {
    SCOPED_TRACE(added);
    const std::string text = Text(type, added);
    const std::string changed = ExtendPositions(text, "config.json", 4096);
    ModelConfig wanted = ParseModelConfig(text, "config.json");
    wanted.max_position_embeddings = 4096;
    EXPECT_EQ(ParseModelConfig(changed, "changed"), wanted) << changed;
    const Json before = Json::parse(text), after = Json::parse(changed);
    for (const auto& [key, value] : before.items())
      if (!key.starts_with("rope") && key != "max_position_embeddings") {
        EXPECT_EQ(after[key], value) << key;
      }
  }
}

TEST(ContextExtension, ChangesAreNamed) {
  const std::string text = Text("llama", R"({"rope_theta": 10000.0, "rope_scaling": null})");
  EXPECT_EQ(DescribeChanges(text, text), "");
  EXPECT_EQ(DescribeChanges(text, OverrideRope(text, "config.json", 5e5, {})),
            "rope_theta: 10000.0 → 500000.0");
  const std::string scaled = OverrideRope(text, "config.json", 0, {{"rope_type", "linear"}, {"factor", "4"}});
  EXPECT_EQ(
      DescribeChanges(text, ExtendPositions(scaled, "config.json", 4096)),
      R"(max_position_embeddings: 1000 → 4096; rope_scaling: null → {"rope_type":"linear","factor":4})");
}

}  // namespace
}  // namespace longspan
