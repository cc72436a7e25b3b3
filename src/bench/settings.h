// What a benchmark is told: each setting narrows its table of cases to one value of a dimension, or replaces
// a default. cli/bench_command.cc lists their keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace longspan::bench {

// 0 or empty: those of the table.
struct Settings {
  int64_t max_target_length = 0, head_dim = 0, query_heads = 0, kv_heads = 0, threads = 0;
  int64_t layers = 0, ranks = 0, runs = 0;
  std::string model, dtype, pass, strategy;
  std::string format = "table";  // table | json

  // 1 and all cores, or the one that was given.
  std::vector<int> Threads() const;
  // The given one alone, or `defaults`.
  std::vector<DType> DTypes(std::vector<DType> defaults) const;
  bool Wants(std::string_view pass_name) const { return pass.empty() || pass == pass_name; }
};

// What is set, or else this.
inline int64_t ValueOr(int64_t setting, int64_t otherwise) { return setting != 0 ? setting : otherwise; }

}  // namespace longspan::bench
