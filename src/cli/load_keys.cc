#include <fmt/ranges.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "cli/keys.h"
#include "core/check.h"
#include "core/file.h"
#include "core/names.h"
#include "data/utf8.h"

namespace longspan {
namespace {

constexpr size_t kMaxShownBytes = 200;  // of what was given, in an error
constexpr size_t kMaxRecipeBytes = size_t{16} << 20;  // of which yaml-cpp makes gigabytes
constexpr const char* kCommandLine = "command line";

std::string Shown(std::string_view text) { return Shortened(text, kMaxShownBytes); }

[[noreturn]] void FailValue(const Key& key, const std::string& got, const std::string& where) {
  throw Error(fmt::format("{}: {} wants {}, got {}", where, key.name, Wanted(key), got), ExitCode::kUsage);
}

// The whole text as a number; nothing if it is none, or not finite.
template <class Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(static_cast<double>(value))) return std::nullopt;
  return value;
}

std::optional<bool> ParseBool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

// What a run was given stands in its config.yml, and yaml-cpp writes U+FFFD for what is no text.
void CheckCharacters(const Key& key, const std::string& text, const std::string& where) {
  const auto is_written = [](char32_t code) {
    return (code & 0xFFFEu) != 0xFFFE && (code < 0xFDD0 || code > 0xFDEF);
  };
  size_t at = 0;
  const size_t valid = ValidUtf8Prefix(text);
  while (at < valid) {
    const size_t begin = at;
    if (is_written(NextCodePoint(text, &at))) continue;
    at = begin;
    break;
  }
  Require(
      ExitCode::kUsage, at == text.size(),
      "{}: {} is not UTF-8 text at byte {} of '{}', so no recipe can hold it; convert it, or rename the file "
      "it names",
      where, key.name, at, Shown(text));
}

void CheckText(const Key& key, const std::string& text, const std::string& where) {
  if (text.empty() && key.default_text.empty()) return;  // unset
  CheckCharacters(key, text, where);
  const std::string got = fmt::format("'{}'", Shown(text));
  if (!key.choices.empty() && std::ranges::find(key.choices, text) == key.choices.end()) {
    const std::string_view nearest = NearestName(text, key.choices);
    FailValue(key, nearest.empty() ? got : fmt::format("{}; did you mean '{}'?", got, nearest), where);
  }
  if (text.empty() && !key.default_text.empty())
    FailValue(key, fmt::format("none; leave the key out for '{}'", key.default_text), where);
}

void SetMap(const Key& key, const YAML::Node& node, const std::string& where) {
  ValueMap map;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar())
      FailValue(key, "a map in which not all names and values are plain words", where);
    const std::string& name = entry.first.Scalar();
    Require(ExitCode::kUsage, !name.empty(), "{}: {} has an entry without a name", where, key.name);
    CheckCharacters(key, name, where);
    CheckText(key, entry.second.Scalar(), where);
    Require(ExitCode::kUsage, map.emplace(name, entry.second.Scalar()).second, "{}: '{}' is repeated in {}",
            where, Shown(name), key.name);
  }
  if (map.empty()) FailValue(key, "an empty map", where);
  *std::get<ValueMap*>(key.field) = std::move(map);
}

void SetKey(const Key& key, const std::string& text, const std::string& where) {
  const auto set_number = [&]<class Number>(Number* field) {
    const std::optional<Number> value = ParseNumber<Number>(text);
    if (!value || !key.range.Contains(static_cast<double>(*value)))
      FailValue(key, fmt::format("'{}'", Shown(text)), where);
    *field = *value;
  };
  if (const auto* integer = std::get_if<int64_t*>(&key.field)) {
    set_number(*integer);
  } else if (const auto* real = std::get_if<double*>(&key.field)) {
    set_number(*real);
  } else if (const auto* flag = std::get_if<bool*>(&key.field)) {
    const std::optional<bool> value = ParseBool(text);
    if (!value) FailValue(key, fmt::format("'{}'", Shown(text)), where);
    **flag = *value;
  } else {
    CheckText(key, text, where);
    if (const auto* map = std::get_if<ValueMap*>(&key.field)) {
      **map = text.empty() ? ValueMap{} : ValueMap{{"", text}};
    } else {
      *std::get<std::string*>(key.field) = text;
    }
  }
}

// A value as a recipe has it.
void SetKey(const Key& key, const YAML::Node& value, const std::string& where) {
  if (value.IsMap() && std::holds_alternative<ValueMap*>(key.field)) return SetMap(key, value, where);
  if (value.IsMap() || value.IsSequence()) FailValue(key, value.IsMap() ? "a map" : "a list", where);
  SetKey(key, value.IsNull() ? std::string() : value.Scalar(), where);
}

// … as the command line has it, where only a map is YAML.
void SetOverride(const Key& key, const std::string& text) {
  if (!std::holds_alternative<ValueMap*>(key.field) || !text.starts_with('{'))
    return SetKey(key, text, kCommandLine);
  YAML::Node node;
  try {
    node = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    FailValue(key, fmt::format("'{}', which is no YAML map: {}", Shown(text), error.msg), kCommandLine);
  }
  SetKey(key, node, kCommandLine);
}

// What the arguments of one command say.
class Loader {
 public:
  Loader(std::string_view command, const KeyList& keys) : command_(command), keys_(keys) {}

  void ApplyRecipe(const std::string& path) { ApplyText(ReadRecipe(path), path); }
  void ApplyText(const std::string& text, const std::string& path);
  void ApplyOverride(const std::string& name, const std::string& value);
  void RequireAll() const;
  [[noreturn]] void FailOption(const std::string& option) const {
    throw Error(fmt::format("{}: unknown option '{}'; keys are given as key=value, and `longspan {} --help` "
                            "lists them",
                            kCommandLine, Shown(option), command_),
                ExitCode::kUsage);
  }

 private:
  // Of a recipe or an override. Throws unless it is the name of a key; the error holds the nearest one.
  const Key& RequireKey(std::string_view name, const std::string& where) const;
  std::string ReadRecipe(const std::string& path) const;

  const std::string_view command_;
  const KeyList& keys_;
  std::set<std::string_view> given_;
  std::map<std::string, std::string> overrides_;
};

const Key& Loader::RequireKey(std::string_view name, const std::string& where) const {
  const Key* key = keys_.Find(name);
  if (key != nullptr && !key->is_option) return *key;
  Require(ExitCode::kUsage, key == nullptr, "{}: {} is an option; give it as --{} VALUE", where, name, name);
  std::vector<std::string_view> names;
  for (const Key& k : keys_.keys()) names.push_back(k.name);
  const std::string_view nearest = NearestName(name, names);
  throw Error(fmt::format("{}: unknown key '{}'; {}", where, Shown(name),
                          nearest.empty() ? fmt::format("`longspan {} --help` lists them", command_)
                                          : fmt::format("did you mean '{}'?", nearest)),
              ExitCode::kUsage);
}

std::string Loader::ReadRecipe(const std::string& path) const {
  const bool is_key = keys_.Find(path) != nullptr;
  Require(ExitCode::kUsage, Exists(path), "recipe '{}' isn't there{}", path,
          is_key ? fmt::format("; a key is set as {}=VALUE", path)
                 : "; give the path of a YAML file, or key=value");
  Require(ExitCode::kUsage, IsRegularFile(path), "recipe '{}' is no file", path);
  return ReadTextFile(path);
}

class NoEvents final : public YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}
};

// 0, 1, or 2 for more: of text such as ",a" yaml-cpp finds documents without end, so LoadAll would not
// return.
int CountDocuments(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  NoEvents events;
  int count = 0;
  while (count < 2 && parser.HandleNextDocument(events)) ++count;
  return count;
}

// One flat map. yaml-cpp's nodes keep repeated keys when they are iterated (looking one up would hide it).
void Loader::ApplyText(const std::string& text, const std::string& path) {
  Require(ExitCode::kUsage, text.size() <= kMaxRecipeBytes, "{}: a recipe has at most {} bytes, got {}", path,
          kMaxRecipeBytes, text.size());
  int num_documents = 0;
  YAML::Node recipe;
  try {
    num_documents = CountDocuments(text);
    if (num_documents == 1) recipe = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw Error(fmt::format("{}:{}: not YAML: {}", path, error.mark.line + 1, error.msg), ExitCode::kUsage);
  }
  if (num_documents == 0) return;  // nothing but comments
  const auto position = [&](const YAML::Node& node) {
    return fmt::format("{}:{}", path, node.Mark().line + 1);
  };
  Require(ExitCode::kUsage, num_documents == 1, "{}: a recipe is one YAML document, got more", path);
  Require(ExitCode::kUsage, recipe.IsMap(), "{}: a recipe is a map of `key: value` lines, got {}",
          position(recipe), recipe.IsSequence() ? "a list" : "a single value");

  std::map<std::string, int> line_of;
  for (const auto& entry : recipe) {
    const YAML::Node& value = entry.second;
    const std::string where = position(entry.first);
    Require(ExitCode::kUsage, entry.first.IsScalar(),
            "{}: a key is a plain word, got a map, a list or nothing", where);
    const std::string& name = entry.first.Scalar();
    const auto [first, is_new] = line_of.try_emplace(name, entry.first.Mark().line + 1);
    Require(ExitCode::kUsage, is_new, "{}: key '{}' is repeated; it stands on line {} already", where, name,
            first->second);
    if (value.IsMap() && keys_.Find(name) == nullptr) {
      for (const auto& inner : value)
        Require(ExitCode::kUsage, !inner.first.IsScalar() || keys_.Find(inner.first.Scalar()) == nullptr,
                "{}: key '{}' stands inside '{}'; a recipe is one flat map, so move it to the top level",
                position(inner.first), inner.first.Scalar(), name);
    }
    const Key& key = RequireKey(name, where);
    SetKey(key, value, where);
    given_.insert(key.name);
  }
}

void Loader::ApplyOverride(const std::string& name, const std::string& value) {
  const Key& key = RequireKey(name, kCommandLine);
  const auto [first, is_new] = overrides_.try_emplace(name, value);
  Require(ExitCode::kUsage, is_new, "{}: key '{}' is repeated, with '{}' and '{}'", kCommandLine, name,
          Shown(first->second), Shown(value));
  SetOverride(key, value);
  given_.insert(key.name);
}

void Loader::RequireAll() const {
  for (const Key& key : keys_.keys())
    Require(ExitCode::kUsage, !key.required || (given_.contains(key.name) && !ValueText(key).empty()),
            "{0} is not given; add {0}=VALUE to the command line or {0}: VALUE to the recipe{1}", key.name,
            key.required_hint);
}

// An argument that is an option of this list, with its value, which may be the next argument; a flag has
// none.
bool TakeOption(const KeyList& keys, std::span<const std::string> arguments, size_t& i,
                std::set<std::string_view>& taken) {
  const std::string& argument = arguments[i];
  const size_t equals = argument.find('=');
  const Key* key = argument.starts_with("--") ? keys.Find(argument.substr(2, equals - 2)) : nullptr;
  if (key == nullptr || !key->is_option) return false;
  const bool is_flag = std::holds_alternative<bool*>(key->field) && equals == std::string::npos;
  Require(ExitCode::kUsage, is_flag || equals != std::string::npos || i + 1 < arguments.size(),
          "{}: --{} wants a value: {}", kCommandLine, key->name, Wanted(*key));
  Require(ExitCode::kUsage, taken.insert(key->name).second, "{}: --{} is repeated", kCommandLine, key->name);
  if (is_flag) {
    SetKey(*key, "true", kCommandLine);
    return true;
  }
  SetKey(*key, equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1), kCommandLine);
  return true;
}

}  // namespace

void LoadKeys(std::string_view command, const KeyList& keys, std::span<const std::string> arguments,
              std::string_view positional) {
  Loader loader(command, keys);
  std::vector<std::pair<std::string, std::string>> overrides;
  std::set<std::string_view> options;  // that were given
  std::optional<std::string> lone;     // the recipe, or the positional key's value
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (TakeOption(keys, arguments, i, options)) continue;
    if (argument.starts_with("-")) loader.FailOption(argument);
    if (const size_t equals = argument.find('='); equals != std::string::npos) {
      overrides.emplace_back(argument.substr(0, equals), argument.substr(equals + 1));
      continue;
    }
    Require(ExitCode::kUsage, !lone,
            "{}: two {}, '{}' and '{}'; one at most, and keys are given as key=value", kCommandLine,
            positional.empty() ? "recipes" : fmt::format("values for {}", positional), lone.value_or(""),
            argument);
    lone = argument;
  }
  if (lone && positional.empty()) loader.ApplyRecipe(*lone);
  if (lone && !positional.empty()) loader.ApplyOverride(std::string(positional), *lone);
  for (const auto& [name, value] : overrides) loader.ApplyOverride(name, value);
  loader.RequireAll();
}

void LoadKeysFromText(std::string_view command, const KeyList& keys, const std::string& text,
                      const std::string& where) {
  Loader loader(command, keys);
  loader.ApplyText(text, where);
  loader.RequireAll();
}

}  // namespace longspan
