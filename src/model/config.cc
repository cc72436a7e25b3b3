#include "model/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"
#include "model/config_reader.h"
#include "model/families.h"
#include "model/rope_config.h"

namespace longspan {
namespace {

using Bias = ModelFamily::AttentionBias;
using Windows = ModelFamily::Windows;

constexpr int64_t kMaxWidth = int64_t{1} << 20;  // bounds keep every product of sizes far inside 64 bits
constexpr int64_t kMaxCount = int64_t{1} << 12;  // layers, heads, head width
constexpr size_t kMaxTextBytes = size_t{16} << 20;
constexpr int64_t kMaxVocabulary = (int64_t{1} << 31) - 1;  // token ids are int32

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

ConfigJson ParseObject(std::string_view text, const std::string& where) {
  Require(text.size() <= kMaxTextBytes, "{}: it has {} bytes; {} are the most that a model's has", where,
          text.size(), kMaxTextBytes);
  ConfigJson json = ParseJson<ConfigJson>(text, where);
  Require(json.is_object(), "{}: not a JSON object but {}", where, json.type_name());
  return json;
}

// Settings that change the result. Only these values are implemented, but for families that read the key;
// missing or null means the first.
struct FixedSetting {
  const char* key;
  std::vector<ConfigJson> supported;
};
const std::vector<FixedSetting>& FixedSettings() {
  static const std::vector<FixedSetting> settings = {
      {"mlp_bias", {false}},
      {"lm_head_bias", {false}},
      {"attention_dropout", {0}},
      {"hidden_dropout", {0}},
      {"resid_pdrop", {0}},
      {"embd_pdrop", {0}},
      {"sliding_window", {nullptr}},
      {"use_sliding_window", {false}},
      {"sliding_window_pattern", {nullptr}},
      {"attention_chunk_size", {nullptr}},
      {"no_rope_layers", {nullptr}},
      {"no_rope_layer_interval", {nullptr}},
      {"quantization_config", {nullptr}},
      {"num_experts", {nullptr, 0, 1}},
      {"num_local_experts", {nullptr, 0, 1}},
      {"partial_rotary_factor", {1}},
      {"rope_interleaved", {false}},
      {"rope_local_base_freq", {nullptr}},
      {"use_qk_norm", {false}},
      {"attn_logit_softcapping", {nullptr}},
      {"final_logit_softcapping", {nullptr}},
      {"query_pre_attn_scalar", {nullptr}},
      {"use_bidirectional_attention", {false}},
      {"attention_multiplier", {nullptr}},
      {"embedding_multiplier", {1}},
      {"residual_multiplier", {1}},
      {"logits_scaling", {1}},
      {"is_encoder_decoder", {false}},
      {"add_cross_attention", {false}},
  };
  return settings;
}

const ModelFamily& ReadFamily(const ConfigReader& reader) {
  std::vector<std::string_view> types;
  for (const ModelFamily& family : ModelFamilies()) types.push_back(family.model_type);
  const std::optional<std::string> type = reader.MaybeString("model_type");
  const ConfigJson* architectures = reader.Find("architectures");
  Require(type || architectures,
          "{}: neither model_type nor architectures says what model this is; supported: {}", reader.where(),
          fmt::join(types, ", "));
  for (const ModelFamily& family : ModelFamilies()) {
    const ConfigJson wanted = ConfigJson::array({family.architecture});
    if (type ? *type != family.model_type : *architectures != wanted) continue;
    if (architectures)
      Require(*architectures == wanted, "{}: architectures {} is not implemented for {}; supported: [\"{}\"]",
              reader.where(), Quoted(*architectures), family.model_type, family.architecture);
    return family;
  }
  const std::string name = type ? "model_type '" + *type + "'" : "architectures " + architectures->dump();
  throw Error(fmt::format("{}: {} is not implemented; supported: {}", reader.where(), Shortened(name, 80),
                          fmt::join(types, ", ")));
}

void RefuseUnsupported(const ConfigReader& reader, const ModelFamily& family) {
  for (const FixedSetting& setting : FixedSettings()) {
    const ConfigJson* value = reader.Find(setting.key);
    if (!value || family.Reads(setting.key)) continue;
    bool supported = false;
    std::vector<std::string> names;
    for (const ConfigJson& s : setting.supported) {
      supported |= *value == s;
      names.push_back(s.dump());
    }
    Require(supported, "{}: {} {} is not implemented for {}; supported: {}", reader.where(), setting.key,
            Quoted(*value), family.model_type, fmt::join(names, ", "));
  }
}

// The row of the embedding that torch calls padding_idx; from the end if it is negative.
int64_t ReadPadToken(const ConfigReader& reader, const ModelFamily& family, int64_t vocab_size) {
  if (reader.IsNull("pad_token_id")) return -1;
  const ConfigJson* value = reader.Find("pad_token_id");
  if (value == nullptr) return family.pad_token_id < vocab_size ? family.pad_token_id : -1;
  const bool is_row = value->is_number_integer() && value->get<double>() < static_cast<double>(vocab_size) &&
                      value->get<double>() >= -static_cast<double>(vocab_size);
  reader.RequireValue(is_row, "pad_token_id", *value,
                      fmt::format("null or an id below vocab_size {}", vocab_size));
  const auto id = value->get<int64_t>();
  return id < 0 ? id + vocab_size : id;
}

void ReadSizes(const ConfigReader& reader, const ModelFamily& family, ModelConfig& config) {
  config.vocab_size = reader.Int("vocab_size", kMaxVocabulary);
  config.hidden_size = reader.Int("hidden_size", kMaxWidth);
  config.intermediate_size = reader.Int("intermediate_size", kMaxWidth);
  config.num_hidden_layers = reader.Int("num_hidden_layers", kMaxCount);
  const int64_t heads = config.num_attention_heads = reader.Int("num_attention_heads", kMaxCount);
  const bool as_many = family.num_key_value_heads == 0 || reader.IsNull("num_key_value_heads");
  config.num_key_value_heads = reader.MaybeInt("num_key_value_heads", kMaxCount)
                                   .value_or(as_many ? heads : family.num_key_value_heads);
  Require(heads % config.num_key_value_heads == 0,
          "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", reader.where(), heads,
          config.num_key_value_heads);
  const std::optional<int64_t> head_dim = reader.MaybeInt("head_dim", kMaxCount);
  Require(head_dim || family.head_dim > 0 || config.hidden_size % heads == 0,
          "{}: hidden_size {} is not a multiple of num_attention_heads {}, and there is no head_dim",
          reader.where(), config.hidden_size, heads);
  config.head_dim = head_dim ? *head_dim : family.head_dim > 0 ? family.head_dim : config.hidden_size / heads;
  Require(config.head_dim % 2 == 0, "{}: head_dim {} is odd, but rotary embeddings need pairs",
          reader.where(), config.head_dim);
  config.max_position_embeddings =
      reader.MaybeInt("max_position_embeddings", kMaxPositions).value_or(family.max_position_embeddings);
}

void ReadBiases(const ConfigReader& reader, const ModelFamily& family, ModelConfig& config) {
  const bool queries = family.attention_bias == Bias::kQueryKeyValue;
  const bool bias = reader.Bool("attention_bias", queries);
  Require(family.attention_bias == Bias::kByKey || bias == queries,
          "{}: attention_bias {} is not implemented for {}; supported: {}", reader.where(), bias,
          family.model_type, queries);
  config.query_key_value_bias = bias;
  config.out_proj_bias = bias && !queries;
  config.mlp_bias = reader.Bool("mlp_bias", false);
}

GateActivation ReadActivation(const ConfigReader& reader, const ModelFamily& family) {
  const std::string key(family.activation_key);
  const std::string name = reader.MaybeString(key).value_or(std::string(family.activation));
  Require(name == "silu" || name == "gelu_pytorch_tanh",
          "{}: {} \"{}\" is not implemented; supported: \"silu\", \"gelu_pytorch_tanh\"", reader.where(), key,
          name);
  for (const char* other : {"hidden_act", "hidden_activation"}) {
    const std::string also = reader.MaybeString(other).value_or(name);
    Require(also == name, "{}: {} is \"{}\" but {}, which {} reads, is \"{}\"; make them equal",
            reader.where(), other, also, key, family.model_type, name);
  }
  return name == "silu" ? GateActivation::kSilu : GateActivation::kGeluTanh;
}

// A soft cap; for these keys null means none, and only a missing one the default.
double ReadSoftCap(const ConfigReader& reader, const ModelFamily& family, const std::string& key,
                   double otherwise) {
  if (!family.Reads(key) || reader.IsNull(key)) return 0;
  return reader.MaybePositive(key).value_or(otherwise);
}

// (L): whether each layer is windowed, if there is a window at all.
std::vector<bool> WindowedLayers(const ConfigReader& reader, const ModelFamily& family, int64_t num_layers) {
  const auto count = [&](const char* key, int64_t otherwise) {
    return reader.MaybeInt(key, kMaxCount).value_or(otherwise);
  };
  std::vector<bool> windowed;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    switch (family.windows) {
      case Windows::kNone:
        windowed.push_back(false);
        break;
      case Windows::kAll:
        windowed.push_back(true);
        break;
      case Windows::kFromLayer: {
        const double first =
            reader.MaybeNumber("max_window_layers", 0, "a number of at least 0").value_or(28);
        windowed.push_back(reader.Bool("use_sliding_window", false) && static_cast<double>(layer) >= first);
        break;
      }
      case Windows::kPattern: {
        const int64_t pattern = family.Reads("sliding_window_pattern")
                                    ? count("sliding_window_pattern", family.sliding_window_pattern)
                                    : family.sliding_window_pattern;
        windowed.push_back((layer + 1) % pattern != 0);
        break;
      }
    }
  }
  return windowed;
}

// 0: none. Null means none too, and only a missing key the default.
int64_t ReadWindow(const ConfigReader& reader, const ModelFamily& family) {
  const std::string key = "sliding_window";
  const bool used = family.windows != Windows::kFromLayer || reader.Bool("use_sliding_window", false);
  if (!family.Reads(key) || !used || reader.IsNull(key)) return 0;
  return reader.MaybeInt(key, kMaxPositions).value_or(family.sliding_window);
}

// (L) names of layer types.
std::vector<std::string> ReadLayerTypes(const ConfigReader& reader, const ModelFamily& family,
                                        int64_t num_layers, int64_t window) {
  std::vector<std::string> types;
  const bool pattern = family.windows == Windows::kPattern;  // whose windowed layers cannot do without
  for (const bool windowed : WindowedLayers(reader, family, num_layers))
    types.push_back(windowed && (window > 0 || pattern) ? kSliding : kFull);
  if (const ConfigJson* given = reader.Find("layer_types"); given) {
    const std::string wanted = fmt::format("a list of {} layer types", num_layers);
    reader.RequireValue(given->is_array() && static_cast<int64_t>(given->size()) == num_layers, "layer_types",
                        *given, wanted);
    for (const ConfigJson& type : *given)
      Require(type == kFull || type == kSliding,
              "{}: layer type {} is not implemented; supported: \"{}\", \"{}\"", reader.where(), Quoted(type),
              kFull, kSliding);
    Require(family.Reads("layer_types") || *given == ConfigJson(types),
            "{}: layer_types {} is not implemented for {}, whose layers are all \"{}\" here", reader.where(),
            Quoted(*given), family.model_type, types[0]);
    types = given->get<std::vector<std::string>>();
  }
  Require(window > 0 || std::find(types.begin(), types.end(), kSliding) == types.end(),
          "{}: layers are \"{}\", but there is no sliding_window{}", reader.where(), kSliding,
          family.Reads("use_sliding_window") ? " in use" : "");
  return types;
}

// The two spellings: rope_scaling (null, or an object with rope_type or type) beside rope_theta; and the
// newer rope_parameters, an object that holds rope_theta as well. Where windowed layers have a rope of their
// own, it is rope_local_base_freq in the one and an object for each layer type in the other.
class RopeReader {
 public:
  RopeReader(const ConfigReader& reader, const ModelFamily& family, const ModelConfig& config)
      : reader_(reader), family_(family) {
    scaling_ = reader.Find("rope_scaling");
    parameters_ = reader.Find("rope_parameters");
    Require(!scaling_ || !parameters_, "{}: both rope_scaling and rope_parameters are given; remove one",
            reader.where());
    context_ = {.family = &family,
                .head_dim = config.head_dim,
                .max_position_embeddings = config.max_position_embeddings};
    context_.partial_rotary_factor = reader.MaybePositive("partial_rotary_factor");
    const int64_t original = family.original_max_position_embeddings;
    context_.original_max_position_embeddings =
        reader.MaybeInt("original_max_position_embeddings", kMaxPositions);
    if (!context_.original_max_position_embeddings && original > 0)
      context_.original_max_position_embeddings = original;
    if (nested() && parameters_) {
      for (const auto& [key, value] : Object("rope_parameters", parameters_).items())
        Require(
            key == kFull || key == kSliding,
            "{}: rope_parameters: key '{}' is not implemented for {}, where each of {} and {} has an object "
            "of its own",
            reader.where(), key, family.model_type, kFull, kSliding);
    }
  }

  RopeConfig Read(const std::string& layer_type) const {
    RopeContext context = context_;
    const bool local = nested() && layer_type == kSliding;
    context.theta = reader_.MaybePositive(local ? "rope_local_base_freq" : "rope_theta");
    context.default_theta = local ? family_.rope_local_base_freq : family_.rope_theta;

    std::string name = scaling_ ? "rope_scaling" : "rope_parameters";
    const ConfigJson* value = scaling_ ? scaling_ : parameters_;
    if (nested() && parameters_) {
      name += ": " + layer_type;
      value = ConfigReader(*parameters_, reader_.where()).Find(layer_type);
    } else if (local) {
      value = nullptr;  // rope_scaling is of the other layers
    }
    const ConfigReader object(Object(name, value), reader_.where() + ": " + name);
    if (nested() && scaling_ && !object.Find("rope_type")) {
      const std::string type = object.MaybeString("type").value_or("default");
      Require(type == "default",
              "{}: type is '{}', but there is no rope_type; for {} transformers reads rope_type alone, and "
              "would scale nothing: write rope_type",
              object.where(), type, family_.model_type);
    }
    const RopeConfig rope =
        ReadRope(object, context, /*rope_type_required=*/scaling_ && !object.json().empty());
    Require(!nested() || rope.truncate,
            "{}: truncate false or null is not implemented for {}, of which transformers does not read it",
            object.where(), family_.model_type);
    return rope;
  }

 private:
  bool nested() const { return family_.rope_local_base_freq > 0; }
  const ConfigJson& Object(const std::string& name, const ConfigJson* value) const {
    static const ConfigJson none = ConfigJson::object();
    if (!value) return none;
    reader_.RequireValue(value->is_object(), name, *value, "an object");
    return *value;
  }

  const ConfigReader& reader_;
  const ModelFamily& family_;
  const ConfigJson *scaling_ = nullptr, *parameters_ = nullptr;
  RopeContext context_;
};

void ReadLayerKinds(const ConfigReader& reader, const ModelFamily& family, ModelConfig& config) {
  const int64_t window = ReadWindow(reader, family);
  const RopeReader ropes(reader, family, config);
  config.layer_kinds.clear();
  for (const std::string& type : ReadLayerTypes(reader, family, config.num_hidden_layers, window)) {
    auto& kinds = config.layer_kinds;
    const auto known =
        std::find_if(kinds.begin(), kinds.end(), [&](const LayerKind& kind) { return kind.name == type; });
    config.layer_kind_of.push_back(static_cast<int>(known - kinds.begin()));
    if (known != kinds.end()) continue;
    kinds.push_back(
        {.name = type, .sliding_window = type == kSliding ? window : 0, .rope = ropes.Read(type)});
  }
}

// The shortest decimal that is this float, so that 1e-5f is written 1e-05 and not 9.99999974…e-06.
double Shortest(float x) { return std::stod(fmt::format("{}", x)); }

// Null: none.
ConfigJson SoftCap(double cap) { return cap > 0 ? ConfigJson(cap) : ConfigJson(nullptr); }

// The config in the newer spelling, every key that its family reads given.
ConfigJson NewText(const ModelConfig& config) {
  const ModelFamily* family = FindModelFamily(config.model_type);
  CHECK(family != nullptr);
  ConfigJson json;
  json["architectures"] = {family->architecture};
  if (family->attention_bias == Bias::kByKey) json["attention_bias"] = config.query_key_value_bias;
  json["attention_dropout"] = 0.0;
  json["head_dim"] = config.head_dim;
  json[std::string(family->activation_key)] =
      config.gate_activation == GateActivation::kSilu ? "silu" : "gelu_pytorch_tanh";
  json["hidden_size"] = config.hidden_size;
  json["initializer_range"] = config.initializer_range;
  json["intermediate_size"] = config.intermediate_size;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["model_type"] = config.model_type;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["pad_token_id"] = config.pad_token_id < 0 ? ConfigJson() : ConfigJson(config.pad_token_id);
  json["rms_norm_eps"] = Shortest(config.rms_norm_eps);
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["vocab_size"] = config.vocab_size;
  if (family->Reads("mlp_bias")) json["mlp_bias"] = config.mlp_bias;
  if (family->Reads("query_pre_attn_scalar"))
    json["query_pre_attn_scalar"] = std::llround(1 / (config.attention_scale * config.attention_scale));
  if (family->Reads("attn_logit_softcapping"))
    json["attn_logit_softcapping"] = SoftCap(config.attention_soft_cap);
  if (family->Reads("final_logit_softcapping"))
    json["final_logit_softcapping"] = SoftCap(config.final_soft_cap);

  ConfigJson types = ConfigJson::array(), ropes, window;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerKind& kind = config.layer_kind(layer);
    types.push_back(kind.name);
    ropes[kind.name] = RopeParameters(kind.rope);
    if (kind.sliding_window > 0) window = kind.sliding_window;
  }
  if (family->Reads("layer_types")) json["layer_types"] = types;
  if (family->Reads("sliding_window")) json["sliding_window"] = window;
  if (family->Reads("use_sliding_window")) json["use_sliding_window"] = !window.is_null();
  const ConfigJson& rope = ropes.front();
  json["rope_parameters"] = family->rope_local_base_freq > 0 ? ropes : rope;
  if (family->original_max_position_embeddings > 0 && rope.contains("original_max_position_embeddings"))
    json["original_max_position_embeddings"] = rope["original_max_position_embeddings"];
  return json;
}

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
  const int64_t query = num_attention_heads * head_dim, key = num_key_value_heads * head_dim;
  int64_t vectors = (sandwich_norms ? 4 : 2) * hidden_size;  // of a block
  if (query_key_norm) vectors += 2 * head_dim;
  if (query_key_value_bias) vectors += query + 2 * key;
  if (out_proj_bias) vectors += hidden_size;
  if (mlp_bias) vectors += 2 * intermediate_size + hidden_size;
  return num_matrix_parameters() + num_hidden_layers * vectors + hidden_size +
         (tie_word_embeddings ? 0 : vocab_size * hidden_size);
}

ModelConfig ParseModelConfig(std::string_view json, const std::string& where) {
  const ConfigJson object = ParseObject(json, where);
  const ConfigReader reader(object, where);
  const ModelFamily& family = ReadFamily(reader);
  RefuseUnsupported(reader, family);

  ModelConfig config;
  config.model_type = family.model_type;
  ReadSizes(reader, family, config);
  config.rms_norm_eps =
      static_cast<float>(reader.MaybePositive("rms_norm_eps").value_or(family.rms_norm_eps));
  config.initializer_range =
      reader.MaybeNumber("initializer_range", 0, "a number of at least 0").value_or(0.02);
  config.tie_word_embeddings = reader.Bool("tie_word_embeddings", family.tie_word_embeddings);

  config.pad_token_id = ReadPadToken(reader, family, config.vocab_size);

  ReadBiases(reader, family, config);
  config.query_key_norm = family.query_key_norm;
  config.gate_activation = ReadActivation(reader, family);
  config.norm_offset = family.norm_offset;
  config.sandwich_norms = family.sandwich_norms;
  config.embedding_scale = family.scales_embeddings ? std::sqrt(static_cast<double>(config.hidden_size)) : 1;
  config.fused_projections = family.fused_projections;

  const bool scaled = family.Reads("query_pre_attn_scalar");
  const int64_t width =
      scaled ? reader.MaybeInt("query_pre_attn_scalar", kMaxWidth).value_or(256) : config.head_dim;
  config.attention_scale = 1 / std::sqrt(static_cast<double>(width));
  config.attention_soft_cap =
      ReadSoftCap(reader, family, "attn_logit_softcapping", family.attn_logit_softcapping);
  config.final_soft_cap =
      ReadSoftCap(reader, family, "final_logit_softcapping", family.final_logit_softcapping);
  ReadLayerKinds(reader, family, config);
  return config;
}

std::string WriteModelConfig(const ModelConfig& config, std::string_view source, DType saved_dtype) {
  std::string text =
      WithDType(source.empty() ? NewText(config).dump() : source, saved_dtype, "source of config.json");
  CHECK(ParseModelConfig(text, "config.json to be written") == config);
  return text;
}

std::string WithDType(std::string_view config_json, DType dtype, const std::string& where) {
  ConfigJson json = ParseObject(config_json, where);
  for (const char* key : {"quantization_config", "compression_config"})
    Require(!json.contains(key) || json[key].is_null(),
            "{}: {} says that the weights are quantised; such tensors cannot change their type without their "
            "scales",
            where, key);
  if (json.contains("dtype") || !json.contains("torch_dtype")) json["dtype"] = Name(dtype);
  if (json.contains("torch_dtype")) json["torch_dtype"] = Name(dtype);
  return json.dump(2) + "\n";
}

}  // namespace longspan
