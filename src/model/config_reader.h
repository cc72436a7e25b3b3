// Typed reading of a config.json, in which most keys say nothing about what is computed and are passed over.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "data/json.h"

namespace longspan {

using ConfigJson = nlohmann::ordered_json;  // keys stay in order

inline constexpr int64_t kMaxPositions = int64_t{1} << 40;

// One JSON object; errors begin with `where`. A key that is missing or null has no value.
class ConfigReader {
 public:
  ConfigReader(const ConfigJson& object, std::string where) : object_(object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  const ConfigJson& json() const { return object_; }
  bool IsNull(const std::string& key) const { return object_.contains(key) && object_[key].is_null(); }

  // Null if there is no value.
  const ConfigJson* Find(const std::string& key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  std::optional<int64_t> MaybeInt(const std::string& key, int64_t max) const {
    const ConfigJson* value = Find(key);
    if (!value) return std::nullopt;
    const std::string range = fmt::format("a whole number from 1 to {}", max);
    RequireValue(value->is_number_integer(), key, *value, range);
    // Unsigned first: what exceeds int64 would come out negative.
    RequireValue(!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(max), key,
                 *value, range);
    RequireValue(value->get<int64_t>() >= 1 && value->get<int64_t>() <= max, key, *value, range);
    return value->get<int64_t>();
  }
  int64_t Int(const std::string& key, int64_t max) const { return Given(MaybeInt(key, max), key); }

  std::optional<double> MaybeNumber(const std::string& key, double min, const char* wanted) const {
    const ConfigJson* value = Find(key);
    if (!value) return std::nullopt;
    // What is computed in float32 must be finite there.
    RequireValue(value->is_number() && value->get<double>() >= min &&
                     value->get<double>() <= std::numeric_limits<float>::max(),
                 key, *value, wanted);
    return value->get<double>();
  }
  std::optional<double> MaybePositive(const std::string& key) const {
    return MaybeNumber(key, std::numeric_limits<float>::min(), "a positive number");
  }
  double Positive(const std::string& key) const { return Given(MaybePositive(key), key); }

  bool Bool(const std::string& key, bool otherwise) const {
    const ConfigJson* value = Find(key);
    if (!value) return otherwise;
    RequireValue(value->is_boolean(), key, *value, "true or false");
    return value->get<bool>();
  }

  std::optional<std::string> MaybeString(const std::string& key) const {
    const ConfigJson* value = Find(key);
    if (!value) return std::nullopt;
    RequireValue(value->is_string(), key, *value, "a string");
    return value->get<std::string>();
  }

  void RequireValue(bool ok, const std::string& key, const ConfigJson& got, std::string_view wanted) const {
    Require(ok, "{}: {} is {}, but must be {}", where_, key, Quoted(got), wanted);
  }

 private:
  template <class T>
  T Given(const std::optional<T>& value, const std::string& key) const {
    Require(value.has_value(), "{}: key '{}' is missing", where_, key);
    return *value;
  }

  const ConfigJson& object_;
  const std::string where_;
};

}  // namespace longspan
