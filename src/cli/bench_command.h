// `longspan bench`: what it can measure, and the keys of each subject.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bench/bench.h"
#include "cli/keys.h"

namespace longspan {

struct BenchSubject {
  std::string_view name, summary;
  void (*add_keys)(KeyList& keys, bench::Settings& settings);
  void (*run)(const bench::Settings& settings, bench::Report& report);
};
// Throws Error(kUsage) naming the nearest one.
const BenchSubject& FindBenchSubject(std::string_view name);

KeyList BenchKeys(const BenchSubject& subject, bench::Settings& settings);
// The words after `bench`: a subject and its keys.
void BenchCommand(std::span<const std::string> arguments);

}  // namespace longspan
