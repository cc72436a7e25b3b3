#include "bench/settings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <thread>

#include "core/check.h"
#include "core/names.h"

namespace longspan::bench {
namespace {

void SetFormat(Settings& settings, std::string_view format) {
  Require(ExitCode::kUsage, format == "table" || format == "json",
          "command line: --format wants table or json, got '{}'", format);
  settings.json = format == "json";
}

const Key& FindKey(std::string_view subject, std::span<const Key> keys, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Key& key : keys) {
    if (key.name == name) return key;
    names.push_back(key.name);
  }
  const std::string_view nearest = NearestName(name, names);
  throw Error(fmt::format("command line: unknown key '{}' of bench {}; {}", name, subject,
                          nearest.empty() ? std::string("`longspan bench --help` lists them")
                                          : fmt::format("did you mean '{}'?", nearest)),
              ExitCode::kUsage);
}

void SetKey(Settings& settings, const Key& key, const std::string& value) {
  bool ok = false;
  if (const auto* field = std::get_if<std::optional<int64_t> Settings::*>(&key.field)) {
    int64_t number = 0;
    const char* const last = value.data() + value.size();
    const auto [end, error] = std::from_chars(value.data(), last, number);
    ok = error == std::errc() && end == last && number >= 1 && number <= key.max;
    settings.** field = number;
  } else {
    ok = std::ranges::find(key.choices, value) != key.choices.end();
    settings.*std::get<std::string Settings::*>(key.field) = value;
  }
  Require(ExitCode::kUsage, ok, "command line: {} wants {}, got '{}'", key.name, Wanted(key), value);
}

}  // namespace

std::vector<int> Settings::Threads() const {
  if (threads) return {static_cast<int>(*threads)};
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return all == 1 ? std::vector<int>{1} : std::vector<int>{1, all};
}

std::vector<DType> Settings::DTypes(std::vector<DType> defaults) const {
  if (dtype.empty()) return defaults;
  return {dtype == Name(DType::kBFloat16) ? DType::kBFloat16 : DType::kFloat32};
}

std::string Wanted(const Key& key) {
  if (!key.choices.empty()) return fmt::format("one of {}", fmt::join(key.choices, ", "));
  return fmt::format("an integer from 1 to {}", key.max);
}

Settings ParseSettings(std::string_view subject, std::span<const Key> keys,
                       std::span<const std::string> arguments) {
  Settings settings;
  std::set<std::string_view> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    constexpr std::string_view kFormat = "--format", kFormatIs = "--format=";
    if (argument == kFormat || argument.starts_with(kFormatIs)) {
      Require(ExitCode::kUsage, given.insert(kFormat).second, "command line: --format is repeated");
      SetFormat(settings, argument != kFormat      ? argument.substr(kFormatIs.size())
                          : ++i < arguments.size() ? arguments[i]
                                                   : std::string());
      continue;
    }
    const size_t equals = argument.find('=');
    Require(ExitCode::kUsage, equals != std::string::npos && !argument.starts_with("-"),
            "command line: bench takes key=value and --format table|json, got '{}'; `longspan bench --help` "
            "lists the keys",
            argument);
    const Key& key = FindKey(subject, keys, argument.substr(0, equals));
    Require(ExitCode::kUsage, given.insert(key.name).second, "command line: key '{}' is repeated", key.name);
    SetKey(settings, key, argument.substr(equals + 1));
  }
  return settings;
}

}  // namespace longspan::bench
