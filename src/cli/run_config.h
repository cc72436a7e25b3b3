// The one list of keys: a recipe, an override, the help, the reference and config.yml all come from it.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/train_config.h"

namespace longspan {

// What a number may be: from `min` to `max`, or one value outside of that with a meaning of its own.
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::optional<double> also = {};

  bool Contains(double value) const;
  bool Limits() const;  // there is a number outside it
};

struct Key {
  using Field = std::variant<std::string TrainConfig::*, int64_t TrainConfig::*, double TrainConfig::*,
                             bool TrainConfig::*>;

  std::string_view name;   // of the field as well
  std::string_view group;  // heading in the help
  Field field;
  std::string_view meaning;
  NumberRange range = {};
  std::vector<std::string_view> choices = {};  // of a string; empty: any
  bool required = false;
};

// In the order in which they are shown and written.
std::span<const Key> RunKeys();

constexpr size_t kMaxShownBytes = 200;  // of what was given, in an error

std::string TypeName(const Key& key);  // "integer", "number", "true|false", "text", or its choices "a|b|c"
std::string Wanted(const Key& key);    // "an integer, at least 1": what an error and the help say
std::string ValueText(const Key& key, const TrainConfig& config);  // reads back as the same value

// The configuration of `longspan train [RECIPE.yml] [key=value …]`. Throws Error(kUsage) naming the key,
// where it stands, what it got and what is wanted: unknown or repeated keys (an override is no repetition of
// the recipe's), wrong types, values out of range, unreadable recipes, a required key that is nowhere.
TrainConfig LoadTrainConfig(std::span<const std::string> arguments);

// A recipe that says every key in list order; LoadTrainConfig reads the same configuration back from it.
std::string WriteRecipe(const TrainConfig& config);

}  // namespace longspan
