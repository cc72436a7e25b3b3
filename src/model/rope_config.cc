#include "model/rope_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace longspan {
namespace {

using Kind = RopeConfig::Kind;

// The kinds, and the keys that each has beyond those of all.
struct RopeKind {
  std::string_view name;
  Kind kind;
  std::vector<std::string_view> keys;
};
std::span<const RopeKind> RopeKinds() {
  static const std::vector<RopeKind> kinds = {
      {"default", Kind::kDefault, {}},
      {"linear", Kind::kLinear, {"factor"}},
      {"llama3",
       Kind::kLlama3,
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
      {"yarn",
       Kind::kYarn,
       {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
        "mscale_all_dim", "truncate"}},
      {"longrope",
       Kind::kLongRope,
       {"short_factor", "long_factor", "factor", "original_max_position_embeddings", "attention_factor"}},
  };
  return kinds;
}

std::string_view NameOf(Kind kind) {
  const auto kinds = RopeKinds();
  return std::find_if(kinds.begin(), kinds.end(), [&](const RopeKind& k) { return k.kind == kind; })->name;
}

const RopeKind& ReadKind(const ConfigReader& object, const RopeContext& context, bool required) {
  const std::optional<std::string> type = object.MaybeString("type"),
                                   rope_type = object.MaybeString("rope_type");
  Require(!type || !rope_type || *type == *rope_type, "{}: type is '{}' but rope_type is '{}'; remove one",
          object.where(), type.value_or(""), rope_type.value_or(""));
  const std::vector<std::string_view>& supported = context.family->rope_types;
  Require(type || rope_type || !required, "{}: rope_type is missing; supported: {}", object.where(),
          fmt::join(supported, ", "));
  std::string name = rope_type ? *rope_type : type.value_or("default");
  if (name == "su" && context.family->model_type == "phi3") name = "longrope";  // its first name
  Require(std::find(supported.begin(), supported.end(), name) != supported.end(),
          "{}: rope_type '{}' is not implemented for {}; supported: {}", object.where(), name,
          context.family->model_type, fmt::join(supported, ", "));
  const auto kinds = RopeKinds();
  return *std::find_if(kinds.begin(), kinds.end(), [&](const RopeKind& k) { return k.name == name; });
}

void RefuseOtherKeys(const ConfigReader& object, const RopeKind& kind) {
  std::vector<std::string_view> known = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  known.insert(known.end(), kind.keys.begin(), kind.keys.end());
  for (const auto& [name, value] : object.json().items())
    Require(value.is_null() || std::find(known.begin(), known.end(), name) != known.end(),
            "{}: key '{}' is not implemented for rope_type {}; supported: {}", object.where(), name,
            kind.name, fmt::join(known, ", "));
}

// Of the object's value and the one around it: either, or both if they agree.
template <class T>
std::optional<T> OneOf(const ConfigReader& object, const char* key, std::optional<T> inner,
                       std::optional<T> outer) {
  Require(!outer || !inner || *outer == *inner, "{}: {} is {} there but {} outside; remove one",
          object.where(), key, inner.value_or(T{}), outer.value_or(T{}));
  return inner ? inner : outer;
}

double ReadOriginal(const ConfigReader& object, const RopeContext& context) {
  const char* key = "original_max_position_embeddings";
  const std::optional<int64_t> inner = object.MaybeInt(key, kMaxPositions),
                               outer = context.original_max_position_embeddings;
  return static_cast<double>(OneOf(object, key, inner, outer).value_or(context.max_position_embeddings));
}

std::vector<double> ReadFactors(const ConfigReader& object, const std::string& key, int64_t wanted) {
  const ConfigJson* list = object.Find(key);
  Require(list, "{}: key '{}' is missing", object.where(), key);
  const auto positive = [](const ConfigJson& x) {
    return x.is_number() && std::isfinite(x.get<double>()) && x.get<double>() > 0;
  };
  object.RequireValue(list->is_array() && static_cast<int64_t>(list->size()) == wanted &&
                          std::all_of(list->begin(), list->end(), positive),
                      key, *list, fmt::format("a list of {} positive numbers", wanted));
  return list->get<std::vector<double>>();
}

double AtLeastOne(const ConfigReader& object, const char* key, double value) {
  Require(value >= 1, "{}: {} is {}, but must be at least 1", object.where(), key, value);
  return value;
}

// How much yarn sharpens attention for a context that is `factor` times as long.
double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

void ReadYarn(const ConfigReader& object, const RopeContext& context, RopeConfig& rope) {
  rope.original_max_position_embeddings = ReadOriginal(object, context);
  const double ratio =
      static_cast<double>(context.max_position_embeddings) / rope.original_max_position_embeddings;
  Require(object.json().contains("factor"), "{}: key 'factor' is missing", object.where());
  rope.factor = AtLeastOne(object, "factor", object.MaybePositive("factor").value_or(ratio));
  // transformers takes a 0 of these as nothing.
  const auto positive = [&](const char* key, double otherwise) {
    const double value = object.MaybeNumber(key, 0, "a number of at least 0").value_or(0);
    return value > 0 ? value : otherwise;
  };
  rope.beta_fast = positive("beta_fast", 32);
  rope.beta_slow = positive("beta_slow", 1);
  Require(rope.beta_fast >= rope.beta_slow, "{}: beta_fast {} must not be below beta_slow {}", object.where(),
          rope.beta_fast, rope.beta_slow);
  // transformers asks whether it is true; null is not.
  rope.truncate = object.Bool("truncate", /*otherwise=*/!object.IsNull("truncate"));
  const double mscale = positive("mscale", 0), mscale_all_dim = positive("mscale_all_dim", 0);
  const double derived = mscale > 0 && mscale_all_dim > 0
                             ? YarnMagnitude(rope.factor, mscale) / YarnMagnitude(rope.factor, mscale_all_dim)
                             : YarnMagnitude(rope.factor, 1);
  rope.attention_factor = object.MaybePositive("attention_factor").value_or(derived);
  Require(rope.theta > 1, "{}: rope_theta is {}, but yarn needs more than 1", object.where(), rope.theta);
}

void ReadLongRope(const ConfigReader& object, const RopeContext& context, RopeConfig& rope) {
  const int64_t pairs = rope.rotary_dim(context.head_dim) / 2;
  rope.short_factor = ReadFactors(object, "short_factor", pairs);
  rope.long_factor = ReadFactors(object, "long_factor", pairs);
  rope.original_max_position_embeddings = ReadOriginal(object, context);
  const double ratio =
      static_cast<double>(context.max_position_embeddings) / rope.original_max_position_embeddings;
  const double factor = object.MaybePositive("factor").value_or(ratio);
  const double derived =
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(rope.original_max_position_embeddings));
  rope.attention_factor = object.MaybePositive("attention_factor").value_or(derived);
}

}  // namespace

RopeConfig ReadRope(const ConfigReader& object, const RopeContext& context, bool rope_type_required) {
  const RopeKind& kind = ReadKind(object, context, rope_type_required);
  RefuseOtherKeys(object, kind);
  RopeConfig rope;
  rope.kind = kind.kind;
  rope.theta = OneOf(object, "rope_theta", object.MaybePositive("rope_theta"), context.theta)
                   .value_or(context.default_theta);

  const char* part = "partial_rotary_factor";
  rope.partial_rotary_factor =
      OneOf(object, part, object.MaybePositive(part), context.partial_rotary_factor).value_or(1);
  Require(rope.partial_rotary_factor == 1 || context.family->Reads(part),
          "{}: {} {} is not implemented for {}; supported: 1", object.where(), part,
          rope.partial_rotary_factor, context.family->model_type);
  Require(rope.partial_rotary_factor <= 1, "{}: {} is {}, but must be at most 1", object.where(), part,
          rope.partial_rotary_factor);
  const int64_t dim = rope.rotary_dim(context.head_dim);
  Require(dim > 0 && dim % 2 == 0,
          "{}: {} {} rotates {} of the {} dimensions of a head, but it must be an even number of them",
          object.where(), part, rope.partial_rotary_factor, dim, context.head_dim);

  switch (rope.kind) {
    case Kind::kDefault:
      break;
    case Kind::kLinear:
      rope.factor = AtLeastOne(object, "factor", object.Positive("factor"));
      break;
    case Kind::kLlama3:
      rope.factor = AtLeastOne(object, "factor", object.Positive("factor"));
      rope.low_freq_factor = object.Positive("low_freq_factor");
      rope.high_freq_factor = object.Positive("high_freq_factor");
      rope.original_max_position_embeddings = ReadOriginal(object, context);
      Require(rope.high_freq_factor > rope.low_freq_factor,
              "{}: high_freq_factor {} must exceed low_freq_factor {}", object.where(), rope.high_freq_factor,
              rope.low_freq_factor);
      break;
    case Kind::kYarn:
      ReadYarn(object, context, rope);
      break;
    case Kind::kLongRope:
      ReadLongRope(object, context, rope);
      break;
  }
  Require(std::isfinite(rope.attention_factor),
          "{}: no attention_factor can be derived from these numbers; give it", object.where());
  return rope;
}

ConfigJson RopeParameters(const RopeConfig& rope) {
  ConfigJson json = {{"rope_type", NameOf(rope.kind)}, {"rope_theta", rope.theta}};
  if (rope.partial_rotary_factor != 1) json["partial_rotary_factor"] = rope.partial_rotary_factor;
  const auto original = static_cast<int64_t>(rope.original_max_position_embeddings);
  switch (rope.kind) {
    case Kind::kDefault:
      break;
    case Kind::kLinear:
      json["factor"] = rope.factor;
      break;
    case Kind::kLlama3:
      json["factor"] = rope.factor;
      json["low_freq_factor"] = rope.low_freq_factor;
      json["high_freq_factor"] = rope.high_freq_factor;
      json["original_max_position_embeddings"] = original;
      break;
    case Kind::kYarn:
      json["factor"] = rope.factor;
      json["original_max_position_embeddings"] = original;
      json["attention_factor"] = rope.attention_factor;
      json["beta_fast"] = rope.beta_fast;
      json["beta_slow"] = rope.beta_slow;
      json["truncate"] = rope.truncate;
      break;
    case Kind::kLongRope:
      json["original_max_position_embeddings"] = original;
      json["attention_factor"] = rope.attention_factor;
      json["short_factor"] = rope.short_factor;
      json["long_factor"] = rope.long_factor;
      break;
  }
  return json;
}

}  // namespace longspan
