// What `longspan bench SUBJECT [key=value …]` may be told. Each key narrows the subject's table of cases to
// one value of a dimension, or replaces a default.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace longspan::bench {

struct Settings {
  std::optional<int64_t> max_target_length, head_dim, query_heads, kv_heads, threads;
  std::optional<int64_t> layers, ranks, runs;
  std::string model, dtype, pass, strategy;  // empty: those of the table
  bool json = false;

  int64_t num_runs() const { return runs.value_or(5); }
  // 1 and all cores, or the one that was given.
  std::vector<int> Threads() const;
  // The given one alone, or `defaults`.
  std::vector<DType> DTypes(std::vector<DType> defaults) const;
  bool Wants(std::string_view pass_name) const { return pass.empty() || pass == pass_name; }
};

struct Key {
  using Field = std::variant<std::optional<int64_t> Settings::*, std::string Settings::*>;

  std::string_view name;
  Field field;
  std::string_view meaning;
  int64_t max = 0;                             // of an integer, which is at least 1
  std::vector<std::string_view> choices = {};  // of a text
};
std::string Wanted(const Key& key);  // "an integer from 1 to 4096", "one of forward, backward"

// `arguments`: key=value and --format table|json. Throws Error(kUsage) as `longspan train` does: unknown or
// repeated keys, values out of range, options that there are not.
Settings ParseSettings(std::string_view subject, std::span<const Key> keys,
                       std::span<const std::string> arguments);

}  // namespace longspan::bench
