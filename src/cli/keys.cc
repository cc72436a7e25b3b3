#include "cli/keys.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/check.h"

namespace longspan {
namespace {

std::string Quoted(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

bool IsPlain(const ValueMap& map) { return map.size() == 1 && map.begin()->first.empty(); }

// The number that a name is, or else one above all.
double NumberOf(const std::string& name) {
  double number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_one = error == std::errc() && end == name.data() + name.size() && std::isfinite(number);
  return is_one ? number : std::numeric_limits<double>::infinity();
}

// Names that are numbers in their order, then the others in that of their letters.
std::string MapText(const ValueMap& map) {
  if (map.empty()) return "";
  if (IsPlain(map)) return map.begin()->second;
  std::vector<std::pair<std::string, std::string>> sorted(map.begin(), map.end());
  std::ranges::stable_sort(sorted, {}, [](const auto& entry) { return NumberOf(entry.first); });
  std::vector<std::string> entries;
  for (const auto& [name, value] : sorted)
    entries.push_back(fmt::format("{}: {}", Quoted(name), Quoted(value)));
  return fmt::format("{{{}}}", fmt::join(entries, ", "));
}

std::string RecipeLine(const Key& key) {
  const auto* map = std::get_if<ValueMap*>(&key.field);
  const bool free_text = key.choices.empty() && (std::holds_alternative<std::string*>(key.field) ||
                                                 (map != nullptr && ((*map)->empty() || IsPlain(**map))));
  return fmt::format("{}: {}\n", key.name, free_text ? Quoted(ValueText(key)) : ValueText(key));
}

}  // namespace

NumberRange AtLeast(double min) { return {.min = min}; }
NumberRange Between(double min, double max) { return {.min = min, .max = max}; }
NumberRange Or(double also, NumberRange range) {
  range.also = also;
  return range;
}

bool NumberRange::Contains(double value) const {
  if (also && value == *also) return true;
  return value >= min && value <= max;
}

bool NumberRange::Limits() const { return std::isfinite(min) || std::isfinite(max); }

Key& KeyList::Add(std::string_view name, Key::Field field, std::string_view meaning, NumberRange range,
                  std::vector<std::string_view> choices) {
  CHECK(Find(name) == nullptr);
  Key& key = keys_.emplace_back();
  key.name = name;
  key.group = group_;
  key.field = field;
  key.meaning = meaning;
  key.range = range;
  key.choices = std::move(choices);
  key.default_text = ValueText(key);
  return key;
}

void KeyList::AddFrom(const KeyList& other, std::span<const std::string_view> names) {
  for (const std::string_view name : names) CHECK(other.Find(name) != nullptr);
  for (const Key& key : other.keys())
    if (std::ranges::find(names, key.name) != names.end()) keys_.push_back(key);
}

const Key* KeyList::Find(std::string_view name) const {
  const auto it = std::ranges::find(keys_, name, &Key::name);
  return it == keys_.end() ? nullptr : &*it;
}

Key& KeyList::Get(std::string_view name) {
  const auto it = std::ranges::find(keys_, name, &Key::name);
  CHECK(it != keys_.end());
  return *it;
}

std::string TypeName(const Key& key) {
  if (std::holds_alternative<int64_t*>(key.field)) return "integer";
  if (std::holds_alternative<double*>(key.field)) return "number";
  if (std::holds_alternative<bool*>(key.field)) return "true|false";
  std::string type = key.choices.empty() ? "text" : fmt::format("{}", fmt::join(key.choices, "|"));
  return std::holds_alternative<ValueMap*>(key.field) ? type + ", or a map to it" : type;
}

std::string Wanted(const Key& key) {
  if (std::holds_alternative<bool*>(key.field)) return "true or false";
  const bool is_map = std::holds_alternative<ValueMap*>(key.field);
  if (is_map || std::holds_alternative<std::string*>(key.field)) {
    std::string wanted =
        key.choices.empty() ? "text" : fmt::format("one of {}", fmt::join(key.choices, ", "));
    return is_map ? wanted + ", or a map {name: value, …} to it" : wanted;
  }
  std::string wanted = std::holds_alternative<int64_t*>(key.field) ? "an integer" : "a number";
  const NumberRange& range = key.range;
  if (!range.Limits()) return wanted;
  if (range.also) wanted += fmt::format(", {} or one", *range.also);
  if (std::isinf(range.max)) return wanted + fmt::format(" of at least {}", range.min);
  return wanted + fmt::format(" from {} to {}", range.min, range.max);
}

std::string ValueText(const Key& key) {
  if (const auto* map = std::get_if<ValueMap*>(&key.field)) return MapText(**map);
  if (const auto* text = std::get_if<std::string*>(&key.field)) return **text;
  if (const auto* flag = std::get_if<bool*>(&key.field)) return fmt::format("{}", **flag);
  if (const auto* integer = std::get_if<int64_t*>(&key.field)) return fmt::format("{}", **integer);
  return fmt::format("{}", *std::get<double*>(key.field));
}

std::string WriteRecipe(const KeyList& keys) {
  std::string text;
  for (const Key& key : keys.keys())
    if (!key.is_option) text += RecipeLine(key);
  return text;
}

std::string WriteChanges(const KeyList& keys) {
  std::string text;
  std::string_view group;
  for (const Key& key : keys.keys()) {
    if (key.is_option || ValueText(key) == key.default_text) continue;
    if (key.group != group) text += fmt::format("\n# {}\n", key.group);
    group = key.group;
    text += RecipeLine(key);
  }
  return text;
}

}  // namespace longspan
