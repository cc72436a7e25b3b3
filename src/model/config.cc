#include "model/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/check.h"
#include "data/json.h"

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxWidth = int64_t{1} << 20;  // bounds keep every product of sizes far inside 64 bits
constexpr int64_t kMaxCount = int64_t{1} << 12;  // layers, heads, head width
constexpr int64_t kMaxPositions = int64_t{1} << 40;
constexpr int64_t kMaxVocabulary = (int64_t{1} << 31) - 1;  // token ids are int32

Json ParseObject(std::string_view text, const std::string& where) {
  Json json = ParseJson<Json>(text, where);
  Require(json.is_object(), "{}: not a JSON object but {}", where, json.type_name());
  return json;
}

// Typed reading of one JSON object. A key that is missing or null has no value.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }

  // Null if there is no value.
  const Json* Find(const std::string& key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  std::optional<int64_t> MaybeInt(const std::string& key, int64_t max) const {
    const Json* value = Find(key);
    if (!value) return std::nullopt;
    const std::string range = fmt::format("a whole number from 1 to {}", max);
    RequireValue(value->is_number_integer(), key, *value, range);
    // Unsigned first: what exceeds int64 would come out negative.
    RequireValue(!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(max), key,
                 *value, range);
    RequireValue(value->get<int64_t>() >= 1 && value->get<int64_t>() <= max, key, *value, range);
    return value->get<int64_t>();
  }
  int64_t Int(const std::string& key, int64_t max) const {
    const std::optional<int64_t> value = MaybeInt(key, max);
    Require(value.has_value(), "{}: key '{}' is missing", where_, key);
    return *value;
  }

  std::optional<double> MaybeNumber(const std::string& key, double min, const char* wanted) const {
    const Json* value = Find(key);
    if (!value) return std::nullopt;
    RequireValue(value->is_number() && std::isfinite(value->get<double>()) && value->get<double>() >= min,
                 key, *value, wanted);
    return value->get<double>();
  }
  std::optional<double> MaybePositive(const std::string& key) const {
    return MaybeNumber(key, std::numeric_limits<float>::min(), "a positive number");
  }
  double Positive(const std::string& key) const {
    const std::optional<double> value = MaybePositive(key);
    Require(value.has_value(), "{}: key '{}' is missing", where_, key);
    return *value;
  }

  bool Bool(const std::string& key, bool otherwise) const {
    const Json* value = Find(key);
    if (!value) return otherwise;
    RequireValue(value->is_boolean(), key, *value, "true or false");
    return value->get<bool>();
  }

  std::optional<std::string> MaybeString(const std::string& key) const {
    const Json* value = Find(key);
    if (!value) return std::nullopt;
    RequireValue(value->is_string(), key, *value, "a string");
    return value->get<std::string>();
  }

  void RequireValue(bool ok, const std::string& key, const Json& got, std::string_view wanted) const {
    Require(ok, "{}: {} is {}, but must be {}", where_, key, Quoted(got), wanted);
  }

 private:
  const Json& object_;
  const std::string where_;
};

// Settings that change the result. Only these values are implemented; missing or null means the first.
struct FixedSetting {
  const char* key;
  std::vector<Json> supported;
};
const std::vector<FixedSetting>& FixedSettings() {
  static const std::vector<FixedSetting> settings = {
      {"hidden_act", {"silu"}},
      {"attention_bias", {false}},
      {"mlp_bias", {false}},
      {"attention_dropout", {0}},
      {"hidden_dropout", {0}},
      {"resid_pdrop", {0}},
      {"embd_pdrop", {0}},
      {"sliding_window", {nullptr}},
      {"quantization_config", {nullptr}},
      {"num_experts", {nullptr, 0, 1}},
      {"num_local_experts", {nullptr, 0, 1}},
      {"partial_rotary_factor", {1}},
      {"rope_interleaved", {false}},
      {"use_qk_norm", {false}},
      {"attn_logit_softcapping", {nullptr}},
      {"final_logit_softcapping", {nullptr}},
      {"query_pre_attn_scalar", {nullptr}},
      {"attention_multiplier", {nullptr}},
      {"embedding_multiplier", {1}},
      {"residual_multiplier", {1}},
      {"logits_scaling", {1}},
      {"is_encoder_decoder", {false}},
      {"add_cross_attention", {false}},
  };
  return settings;
}

void RefuseUnsupported(const Reader& reader) {
  const std::optional<std::string> type = reader.MaybeString("model_type");
  const Json* architectures = reader.Find("architectures");
  Require(type || architectures,
          "{}: neither model_type nor architectures says what model this is; supported: llama",
          reader.where());
  Require(!type || *type == "llama", "{}: model_type '{}' is not implemented; supported: llama",
          reader.where(), type.value_or(""));
  if (architectures)
    Require(*architectures == Json::array({"LlamaForCausalLM"}),
            "{}: architectures {} is not implemented; supported: [\"LlamaForCausalLM\"]", reader.where(),
            Quoted(*architectures));

  for (const FixedSetting& setting : FixedSettings()) {
    const Json* value = reader.Find(setting.key);
    if (!value) continue;
    bool supported = false;
    std::vector<std::string> names;
    for (const Json& s : setting.supported) {
      supported |= *value == s;
      names.push_back(s.dump());
    }
    Require(supported, "{}: {} {} is not implemented; supported: {}", reader.where(), setting.key,
            Quoted(*value), fmt::join(names, ", "));
  }
  if (const Json* layers = reader.Find("layer_types"); layers) {
    reader.RequireValue(layers->is_array(), "layer_types", *layers, "a list");
    for (const Json& layer : *layers)
      Require(layer == "full_attention",
              "{}: layer type {} is not implemented; supported: \"full_attention\"", reader.where(),
              Quoted(layer));
  }
}

const std::set<std::string>& RopeKeys() {
  static const std::set<std::string> keys = {"rope_type",
                                             "type",
                                             "rope_theta",
                                             "factor",
                                             "low_freq_factor",
                                             "high_freq_factor",
                                             "partial_rotary_factor",
                                             "original_max_position_embeddings"};
  return keys;
}

// The two spellings: rope_scaling (null, or an object with rope_type or type) beside rope_theta; and the
// newer rope_parameters, an object that holds rope_theta as well.
RopeConfig ReadRope(const Reader& reader) {
  const Json* scaling = reader.Find("rope_scaling");
  const Json* parameters = reader.Find("rope_parameters");
  Require(!scaling || !parameters, "{}: both rope_scaling and rope_parameters are given; remove one",
          reader.where());
  const std::string key = scaling ? "rope_scaling" : "rope_parameters";
  const Json none = Json::object();
  const Json& object = scaling ? *scaling : parameters ? *parameters : none;
  reader.RequireValue(object.is_object(), key, object, "an object");
  const Reader rope(object, reader.where() + ": " + key);

  const std::optional<double> outer = reader.MaybePositive("rope_theta"),
                              inner = rope.MaybePositive("rope_theta");
  Require(!outer || !inner || *outer == *inner, "{}: rope_theta is {} there but {} outside; remove one",
          rope.where(), inner.value_or(0), outer.value_or(0));
  RopeConfig config;
  config.theta = inner ? *inner : outer.value_or(10000);

  const std::optional<std::string> type = rope.MaybeString("type"), rope_type = rope.MaybeString("rope_type");
  Require(!type || !rope_type || *type == *rope_type, "{}: type is '{}' but rope_type is '{}'; remove one",
          rope.where(), type.value_or(""), rope_type.value_or(""));
  Require(object.empty() || type || rope_type || parameters,
          "{}: rope_type is missing; supported: default, llama3", rope.where());
  if (const Json* partial = rope.Find("partial_rotary_factor"); partial)
    Require(*partial == 1, "{}: partial_rotary_factor {} is not implemented; supported: 1", rope.where(),
            Quoted(*partial));
  const std::string kind = rope_type ? *rope_type : type.value_or("default");
  Require(kind == "default" || kind == "llama3",
          "{}: rope_type '{}' is not implemented; supported: default, llama3", rope.where(), kind);
  for (const auto& [name, value] : object.items())
    Require(RopeKeys().contains(name), "{}: key '{}' is not implemented; supported: {}", rope.where(), name,
            fmt::join(RopeKeys(), ", "));
  if (kind == "default") return config;
  config.kind = RopeConfig::Kind::kLlama3;
  config.factor = rope.Positive("factor");
  config.low_freq_factor = rope.Positive("low_freq_factor");
  config.high_freq_factor = rope.Positive("high_freq_factor");
  config.original_max_position_embeddings =
      static_cast<double>(rope.Int("original_max_position_embeddings", kMaxPositions));
  Require(config.factor >= 1, "{}: factor is {}, but must be at least 1", rope.where(), config.factor);
  Require(config.high_freq_factor > config.low_freq_factor,
          "{}: high_freq_factor {} must exceed low_freq_factor {}", rope.where(), config.high_freq_factor,
          config.low_freq_factor);
  return config;
}

// The shortest decimal that is this float, so that 1e-5f is written 1e-05 and not 9.99999974…e-06.
double Shortest(float x) { return std::stod(fmt::format("{}", x)); }

}  // namespace

void ModelConfig::SetNumLayers(int64_t n) {
  const std::vector<int> kinds = layer_kind_of;
  num_hidden_layers = n;
  layer_kind_of.clear();
  for (size_t layer = 0; layer < static_cast<size_t>(n); ++layer)
    layer_kind_of.push_back(kinds[layer % kinds.size()]);
}

int64_t ModelConfig::num_matrix_parameters() const {
  const int64_t query = num_attention_heads * head_dim, key = num_key_value_heads * head_dim;
  const int64_t block = hidden_size * (2 * query + 2 * key + 3 * intermediate_size);
  return num_hidden_layers * block + vocab_size * hidden_size;
}

int64_t ModelConfig::num_parameters() const {
  const int64_t norms = (2 * num_hidden_layers + 1) * hidden_size;
  return num_matrix_parameters() + norms + (tie_word_embeddings ? 0 : vocab_size * hidden_size);
}

ModelConfig ParseModelConfig(std::string_view json, const std::string& where) {
  const Json object = ParseObject(json, where);
  const Reader reader(object, where);
  RefuseUnsupported(reader);

  ModelConfig config;
  config.vocab_size = reader.Int("vocab_size", kMaxVocabulary);
  config.hidden_size = reader.Int("hidden_size", kMaxWidth);
  config.intermediate_size = reader.Int("intermediate_size", kMaxWidth);
  config.num_hidden_layers = reader.Int("num_hidden_layers", kMaxCount);
  const int64_t heads = config.num_attention_heads = reader.Int("num_attention_heads", kMaxCount);
  config.num_key_value_heads = reader.MaybeInt("num_key_value_heads", kMaxCount).value_or(heads);
  Require(heads % config.num_key_value_heads == 0,
          "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", where, heads,
          config.num_key_value_heads);
  const std::optional<int64_t> head_dim = reader.MaybeInt("head_dim", kMaxCount);
  Require(head_dim || config.hidden_size % heads == 0,
          "{}: hidden_size {} is not a multiple of num_attention_heads {}, and there is no head_dim", where,
          config.hidden_size, heads);
  config.head_dim = head_dim ? *head_dim : config.hidden_size / heads;
  Require(config.head_dim % 2 == 0, "{}: head_dim {} is odd, but rotary embeddings need pairs", where,
          config.head_dim);

  // What transformers' LlamaConfig takes where a key is missing.
  config.max_position_embeddings = reader.MaybeInt("max_position_embeddings", kMaxPositions).value_or(2048);
  config.rms_norm_eps = static_cast<float>(reader.MaybePositive("rms_norm_eps").value_or(1e-6));
  config.initializer_range =
      reader.MaybeNumber("initializer_range", 0, "a number of at least 0").value_or(0.02);
  config.tie_word_embeddings = reader.Bool("tie_word_embeddings", false);
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  config.layer_kinds = {LayerKind{.rope = ReadRope(reader)}};
  config.layer_kind_of.assign(static_cast<size_t>(config.num_hidden_layers), 0);
  return config;
}

std::string WriteModelConfig(const ModelConfig& config, std::string_view source, DType saved_dtype) {
  Json json;
  if (!source.empty()) {
    json = ParseObject(source, "source of config.json");
    if (json.contains("dtype") || !json.contains("torch_dtype")) json["dtype"] = Name(saved_dtype);
    if (json.contains("torch_dtype")) json["torch_dtype"] = Name(saved_dtype);
  } else {
    json["architectures"] = {"LlamaForCausalLM"};
    json["attention_bias"] = false;
    json["attention_dropout"] = 0.0;
    json["head_dim"] = config.head_dim;
    json["hidden_act"] = "silu";
    json["hidden_size"] = config.hidden_size;
    json["initializer_range"] = config.initializer_range;
    json["intermediate_size"] = config.intermediate_size;
    json["max_position_embeddings"] = config.max_position_embeddings;
    json["mlp_bias"] = false;
    json["model_type"] = "llama";
    json["num_attention_heads"] = config.num_attention_heads;
    json["num_hidden_layers"] = config.num_hidden_layers;
    json["num_key_value_heads"] = config.num_key_value_heads;
    json["rms_norm_eps"] = Shortest(config.rms_norm_eps);
    json["rope_scaling"] = nullptr;
    const RopeConfig& rope = config.layer_kinds[0].rope;
    if (rope.kind == RopeConfig::Kind::kLlama3) {
      json["rope_scaling"] = {
          {"factor", rope.factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"original_max_position_embeddings", static_cast<int64_t>(rope.original_max_position_embeddings)},
          {"rope_type", "llama3"}};
    }
    json["rope_theta"] = rope.theta;
    json["tie_word_embeddings"] = config.tie_word_embeddings;
    json["torch_dtype"] = Name(saved_dtype);
    json["vocab_size"] = config.vocab_size;
  }
  return json.dump(2) + "\n";
}

}  // namespace longspan
