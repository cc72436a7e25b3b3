#include <algorithm>
#include <string>
#include <vector>

#include "cli/hardware_keys.h"
#include "cli/keys.h"
#include "core/check.h"
#include "fuzz/memory_file.h"
#include "fuzz/readers.h"
#include "plan/simulate.h"
#include "train/metrics.h"

namespace longspan::fuzz {
namespace {

// A configuration with a key of each kind.
struct Settings {
  std::string text, choice = "one";
  int64_t integer = 3;
  double number = 0.5;
  bool flag = false;
  ValueMap map = {{"", "one"}};

  KeyList Keys() {
    KeyList keys;
    keys.Add("text", &text, "Any.");
    keys.Add("choice", &choice, "One of two.", {}, {"one", "two"});
    keys.Add("integer", &integer, "A number.", Between(-5, 1e9));
    keys.Add("number", &number, "Another.", Or(-1, Between(0, 1)));
    keys.Add("flag", &flag, "Yes or no.");
    keys.Add("map", &map, "By name.", {}, {"one", "two"});
    return keys;
  }
};

// They are the same when they are read again.
void CheckWritten(Settings& settings) {
  Settings again;
  const std::string written = WriteRecipe(settings.Keys());
  LoadKeys("fuzz", again.Keys(), std::vector<std::string>{FileOf(written)});
  CHECK(WriteRecipe(again.Keys()) == written);
}

}  // namespace

void ReadRecipe(std::string_view input) {
  Settings settings;
  LoadKeys("fuzz", settings.Keys(), std::vector<std::string>{FileOf(input)});
  CheckWritten(settings);
}

void ReadOverrides(std::string_view input) {
  std::vector<std::string> arguments;
  while (!input.empty()) {
    const size_t end = std::min(input.find('\n'), input.size());
    // Others name a recipe, which may be any file.
    if (const std::string_view line = input.substr(0, end);
        line.starts_with('-') || line.find('=') != line.npos)
      arguments.emplace_back(line);
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  Settings settings;
  LoadKeys("fuzz", settings.Keys(), arguments);
  CheckWritten(settings);
}

void ReadHardware(std::string_view input) {
  const Hardware hardware = ParseHardware(std::string(input), "hardware.yml");
  for (const int64_t ranks : {1, 8, 96}) {
    const Hardware rank = hardware.OfRank(ranks, 2);
    const Machine machine(rank, static_cast<int>(ranks), 1);
    CHECK(rank.usable_memory_bytes() >= 0 && rank.host_memory_bytes() >= 0);
  }
}

void ReadMetrics(std::string_view input) {
  const std::vector<StepMetrics> steps = ReadStepMetrics(FileOf(input));
  std::string lines;
  for (const StepMetrics& step : steps) {
    CHECK(TensorBoardScalars(step, 1).size() >= 7);
    lines += MetricsLine(step);
  }
  std::string again;
  for (const StepMetrics& step : ReadStepMetrics(FileOf(lines))) again += MetricsLine(step);
  CHECK(again == lines);
  Require(!steps.empty(), "no line is of a step");
}

}  // namespace longspan::fuzz
