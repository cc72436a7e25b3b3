#include "model/context_extension.h"

#include "core/check.h"
#include "model/config.h"
#include "model/config_reader.h"
#include "model/families.h"

namespace longspan {
namespace {

constexpr const char* kOriginal = "original_max_position_embeddings";

bool Has(const ConfigJson& object, const char* key) { return object.contains(key) && !object[key].is_null(); }

bool HasNestedRope(const ModelConfig& config) {
  return FindModelFamily(config.model_type)->rope_local_base_freq > 0;
}

// Whether rotary embeddings stand in rope_parameters. A config that says nothing of them is taken by its
// dtype.
bool IsNewSpelling(const ConfigJson& json) {
  if (Has(json, "rope_parameters")) return true;
  return !json.contains("rope_scaling") && !json.contains("rope_theta") && json.contains("dtype") &&
         !json.contains("torch_dtype");
}

// Where the object of a layer type's rotary embedding stands; null if it is not there.
ConfigJson& RopeObject(ConfigJson& json, bool is_new, const ModelConfig& config,
                       const std::string& layer_type) {
  ConfigJson& object = json[is_new ? "rope_parameters" : "rope_scaling"];
  return is_new && HasNestedRope(config) ? object[layer_type] : object;
}

// The kind whose rotary embedding is overridden.
const LayerKind& FullAttention(const ModelConfig& config, const std::string& where) {
  for (const LayerKind& kind : config.layer_kinds)
    if (kind.name == "full_attention") return kind;
  Require(ExitCode::kUsage, !HasNestedRope(config),
          "{}: no layer is of full_attention, whose rotary embedding rope_theta and rope_scaling are for",
          where);
  return config.layer_kinds[0];
}

// A number, true or false as what it is, anything else as text.
ConfigJson ValueOf(const std::string& text) {
  ConfigJson value = ConfigJson::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_number() || value.is_boolean() ? value : ConfigJson(text);
}

// What rope_scaling says, and of `old` what is not scaling.
ConfigJson ScaledRope(const std::map<std::string, std::string>& scaling, const ConfigJson& old,
                      int64_t original) {
  const auto type = scaling.find(scaling.contains("") ? "" : "rope_type");
  Require(
      ExitCode::kUsage, type != scaling.end(),
      "rope_scaling names no rope_type; give for example {{rope_type: yarn, factor: 4}}, or default for no "
      "scaling");
  ConfigJson scaled = {{"rope_type", type->second}};
  for (const auto& [key, value] : scaling)
    if (key != type->first) scaled[key] = ValueOf(value);
  if ((type->second == "llama3" || type->second == "yarn") && !scaled.contains(kOriginal))
    scaled[kOriginal] = original;
  for (const char* kept : {"rope_theta", "partial_rotary_factor"})
    if (Has(old, kept) && !scaled.contains(kept)) scaled[kept] = old[kept];
  return scaled;
}

}  // namespace

std::string OverrideRope(std::string_view text, const std::string& where, double rope_theta,
                         const std::map<std::string, std::string>& rope_scaling) {
  if (rope_theta == 0 && rope_scaling.empty()) return std::string(text);
  const ModelConfig config = ParseModelConfig(text, where);
  auto json = ConfigJson::parse(text);
  const bool is_new = IsNewSpelling(json);
  const LayerKind& kind = FullAttention(config, where);
  ConfigJson rope = RopeObject(json, is_new, config, kind.name);
  if (!rope_scaling.empty()) rope = ScaledRope(rope_scaling, rope, config.max_position_embeddings);

  // In the newer spelling the object holds rope_theta, in the older that stands beside it.
  if (rope_theta > 0) {
    if (is_new || Has(rope, "rope_theta")) rope["rope_theta"] = rope_theta;
    if (!is_new || json.contains("rope_theta")) json["rope_theta"] = rope_theta;
  }
  if (!is_new && rope == ConfigJson{{"rope_type", "default"}}) rope = nullptr;
  RopeObject(json, is_new, config, kind.name) = rope;
  std::string changed = json.dump(2) + "\n";
  try {
    ParseModelConfig(changed, where + " with the rope_theta and rope_scaling that were given");
  } catch (const Error& e) {
    throw Error(e.what(), ExitCode::kUsage);
  }
  return changed;
}

std::string ExtendPositions(std::string_view text, const std::string& where,
                            int64_t max_position_embeddings) {
  ModelConfig config = ParseModelConfig(text, where);
  if (max_position_embeddings <= config.max_position_embeddings) return std::string(text);
  auto json = ConfigJson::parse(text);
  const bool is_new = IsNewSpelling(json);
  for (const LayerKind& kind : config.layer_kinds) {
    const RopeConfig& rope = kind.rope;
    if (rope.original_max_position_embeddings == 0) continue;  // nothing is derived from the positions
    ConfigJson& object = RopeObject(json, is_new, config, kind.name);
    if (!Has(object, kOriginal) && !Has(json, kOriginal))
      object[kOriginal] = static_cast<int64_t>(rope.original_max_position_embeddings);
    if (rope.kind == RopeConfig::Kind::kYarn && !Has(object, "factor")) object["factor"] = rope.factor;
    if (rope.kind == RopeConfig::Kind::kLongRope) {
      const double factor =
          static_cast<double>(config.max_position_embeddings) / rope.original_max_position_embeddings;
      if (!Has(object, "factor")) object["factor"] = factor;
      if (!Has(object, "attention_factor")) object["attention_factor"] = rope.attention_factor;
    }
  }
  config.max_position_embeddings = json["max_position_embeddings"] = max_position_embeddings;
  std::string changed = json.dump(2) + "\n";
  CHECK(ParseModelConfig(changed, where) == config);
  return changed;
}

std::string DescribeChanges(std::string_view before, std::string_view after) {
  const auto was = ConfigJson::parse(before), is = ConfigJson::parse(after);
  std::string text;
  for (const auto& [key, value] : is.items()) {
    const ConfigJson old = was.value(key, ConfigJson());
    if (old == value) continue;
    text += fmt::format("{}{}: {} → {}", text.empty() ? "" : "; ", key, Shortened(old.dump(), 200),
                        Shortened(value.dump(), 200));
  }
  return text;
}

}  // namespace longspan
