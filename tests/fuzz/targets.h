// Fuzz targets: what reads files that come from elsewhere, fed with any bytes. libFuzzer drives one of them
// (fuzzer.cc, `scripts/test fuzz`); replay_test.cc runs all over the inputs in corpus/<name>/.
#pragma once

#include <span>
#include <string_view>

namespace longspan::fuzz {

struct Target {
  std::string_view name;
  // True if the input was read, false if it was refused with an Error. Anything else that is thrown, and a
  // promise of the reader that does not hold, is a finding.
  bool (*accepts)(std::string_view input);
};
std::span<const Target> Targets();

}  // namespace longspan::fuzz
