// Runs that others have published (recipes/published), planned on the machines that they ran on, with one set
// of parameters a chip: recipes/hardware.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.h"

namespace longspan {
namespace {

using namespace testing;

nlohmann::json PlanOf(const std::string& recipe, const std::string& hardware, const std::string& more = "") {
  const ProgramResult result =
      RunProgram(fmt::format("plan {}/recipes/published/{}.yml hardware={} {} --format json",
                             LONGSPAN_SOURCE_DIR, recipe, hardware, more));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return nlohmann::json::parse(result.output);
}

// Utilisation as MaxText counts it, in percent; the middle of what several runs gave.
struct Published {
  const char* recipe;
  const char* hardware;
  double mfu;
};
constexpr Published kPublished[] = {
    {"tpu7-64k", "tpu7", 51.7},        {"tpu7-256k", "tpu7", 50.7},      {"tpu7-1m", "tpu7", 50.45},
    {"tpu7-2m", "tpu7", 50.9},         {"tpu7-4m", "tpu7", 50.9},        {"tpu7-10m", "tpu7", 52.3},
    {"tpu7-14m", "tpu7", 48.75},       {"tpu7-16m", "tpu7", 48.8},       {"tpu-v5p-64k", "tpu-v5p", 67.3},
    {"tpu-v5p-256k", "tpu-v5p", 68.1}, {"tpu-v5p-1m", "tpu-v5p", 66.8},  {"tpu-v5p-2m", "tpu-v5p", 68.75},
    {"tpu-v5p-4m", "tpu-v5p", 69.9},   {"tpu-v5p-10m", "tpu-v5p", 36.7}, {"tpu-v5p-14m", "tpu-v5p", 36.9},
};

TEST(PublishedTest, UtilisationIsPredicted) {
  double sum = 0;
  for (const Published& run : kPublished) {
    const nlohmann::json plan = PlanOf(run.recipe, run.hardware);
    EXPECT_EQ(plan["fits"], true) << run.recipe << ": " << plan["misfit"];
    const double error = 100 * plan["mfu_maxtext"].get<double>() / run.mfu - 1;
    EXPECT_LE(std::abs(error), 0.10) << run.recipe << " is off by " << error;
    sum += std::abs(error);
    RecordProperty(run.recipe, std::to_string(error));
  }
  EXPECT_LE(sum / std::size(kPublished), 0.05);
}

// Seconds of stock Llama 3 8B over 64 chips by strategy: the fastest first.
TEST(PublishedTest, StrategiesComeInTheirOrder) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> orders = {
      {"64k", {"usp 16 × 4", "all_gather", "usp 8 × 8", "ring"}},
      {"128k", {"usp 16 × 4", "usp 8 × 8", "all_gather", "ring"}},
      {"256k", {"usp 8 × 8", "usp 16 × 4", "all_gather", "ring"}},
  };
  const std::vector<std::pair<std::string, std::string>> strategies = {
      {"all_gather", "all_gather"},
      {"ring", "ring"},
      {"usp 16 × 4", "usp context_parallelism=16 ulysses_parallelism=4"},
      {"usp 8 × 8", "usp context_parallelism=8 ulysses_parallelism=8"},
  };
  for (const auto& [length, order] : orders) {
    std::vector<std::pair<double, std::string>> planned;
    for (const auto& [name, keys] : strategies) {
      const nlohmann::json plan =
          PlanOf("tpu-v5p-strategies-" + length, "tpu-v5p", "context_parallel_strategy=" + keys);
      planned.emplace_back(plan["step_seconds"].get<double>(), name);
    }
    std::ranges::sort(planned);
    std::vector<std::string> names;
    for (const auto& [seconds, name] : planned) names.push_back(name);
    EXPECT_EQ(names, order) << length;
  }
}

}  // namespace
}  // namespace longspan
