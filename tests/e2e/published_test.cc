// Runs that others have published (recipes/published), planned on the machines that they ran on, with one set
// of parameters a chip: recipes/hardware. And runs that cannot have been, since they don't fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/program.h"

namespace longspan {
namespace {

using namespace testing;

nlohmann::json PlanOf(const std::string& run, const std::string& hardware) {
  const ProgramResult result = RunProgram(fmt::format("plan {} hardware={} --format json", run, hardware));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return nlohmann::json::parse(result.output);
}

std::string Recipe(const std::string& name) {
  return fmt::format("{}/recipes/published/{}.yml", LONGSPAN_SOURCE_DIR, name);
}

// Utilisation as MaxText counts it, in percent; the middle of what several runs gave.
struct Published {
  const char* recipe;
  const char* hardware;
  double mfu;
};
constexpr Published kPublished[] = {
    {"tpu7-64k", "tpu7", 51.7},       {"tpu7-256k", "tpu7", 50.7},
    {"tpu7-1m", "tpu7", 50.45},       {"tpu7-2m", "tpu7", 50.9},
    {"tpu7-4m", "tpu7", 50.9},        {"tpu7-10m", "tpu7", 52.3},
    {"tpu7-14m", "tpu7", 48.75},      {"tpu7-16m", "tpu7", 48.8},
    {"tpu-v5p-64k", "tpu-v5p", 67.3}, {"tpu-v5p-256k", "tpu-v5p", 68.1},
    {"tpu-v5p-1m", "tpu-v5p", 66.8},  {"tpu-v5p-2m", "tpu-v5p", 68.75},
    {"tpu-v5p-4m", "tpu-v5p", 69.9},  {"tpu-v5p-10m", "tpu-v5p", 36.7},
    {"tpu-v5p-14m", "tpu-v5p", 36.9}, {"tpu-v5p-1m-one-sequence", "tpu-v5p", 30.9},
};

TEST(PublishedTest, UtilisationIsPredicted) {
  double sum = 0;
  for (const Published& run : kPublished) {
    const nlohmann::json plan = PlanOf(Recipe(run.recipe), run.hardware);
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
      {"64k", {"usp 16 × 4", "all_gather", "usp 8 × 8", "usp 32 × 2", "ring"}},
      {"128k", {"usp 16 × 4", "usp 8 × 8", "all_gather", "usp 32 × 2", "ring"}},
      {"256k", {"usp 8 × 8", "usp 16 × 4", "all_gather", "usp 32 × 2", "ring"}},
  };
  const std::vector<std::pair<std::string, std::string>> strategies = {
      {"all_gather", "all_gather"},
      {"ring", "ring"},
      {"usp 32 × 2", "usp context_parallelism=32 ulysses_parallelism=2"},
      {"usp 16 × 4", "usp context_parallelism=16 ulysses_parallelism=4"},
      {"usp 8 × 8", "usp context_parallelism=8 ulysses_parallelism=8"},
  };
  for (const auto& [length, order] : orders) {
    std::vector<std::pair<double, std::string>> planned;
    for (const auto& [name, keys] : strategies) {
      const nlohmann::json plan =
          PlanOf(Recipe("tpu-v5p-strategies-" + length) + " context_parallel_strategy=" + keys, "tpu-v5p");
      planned.emplace_back(plan["step_seconds"].get<double>(), name);
    }
    std::ranges::sort(planned);
    std::vector<std::string> names;
    for (const auto& [seconds, name] : planned) names.push_back(name);
    EXPECT_EQ(names, order) << length;
  }
}

TEST(PublishedTest, WhatHasRunFits) {
  int num_recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LONGSPAN_SOURCE_DIR "/recipes/published")) {
    const std::string recipe = entry.path().stem().string();
    const nlohmann::json plan = PlanOf(Recipe(recipe), recipe.starts_with("tpu7-") ? "tpu7" : "tpu-v5p");
    EXPECT_EQ(plan["fits"], true) << recipe << ": " << plan["misfit"];
    ++num_recipes;
  }
  EXPECT_GE(num_recipes, 18);
}

// Their keys are a trainer's: with a small model and short sequences they run here, over all their ranks, and
// learn what one rank learns.
TEST(PublishedTest, EachTrainsHere) {
  const TemporaryDirectory directory;
  {
    std::ofstream text(directory / "text.txt");
    for (int i = 0; i < 66000; ++i) text << static_cast<char>('a' + (i * i / 7 + i) % 26);
  }
  const auto first_step = [&](const std::string& keys) {
    static int num_runs = 0;
    const std::string name = std::to_string(num_runs++);
    const ProgramResult result = RunProgram(
        fmt::format("train {} model_path=tiny dtype=float32 max_target_length=1024 steps=1 peak_tflops=1 "
                    "enable_checkpointing=false data_path={} base_output_directory={} run_name={}",
                    keys, directory / "text.txt", directory / "runs", name));
    EXPECT_EQ(result.exit_code, 0) << keys << ": " << result.output;
    const std::vector<nlohmann::json> metrics = ReadMetrics(directory / ("runs/" + name));
    EXPECT_EQ(metrics.size(), 1u) << keys;
    return metrics.empty() ? nlohmann::json{{"loss", 0}, {"grad_norm", 0}} : metrics[0];
  };
  std::map<int64_t, nlohmann::json> of_one_rank;  // by the sequences of a step
  for (const auto& entry : std::filesystem::directory_iterator(LONGSPAN_SOURCE_DIR "/recipes/published")) {
    const std::string recipe = Recipe(entry.path().stem().string());
    const int64_t sequences = PlanOf(recipe, "tpu7")["global_batch_size"];
    const nlohmann::json step = first_step(recipe);
    if (!of_one_rank.contains(sequences))
      of_one_rank[sequences] = first_step(fmt::format("ranks=1 global_batch_size={}", sequences));
    const double loss = of_one_rank[sequences]["loss"], norm = of_one_rank[sequences]["grad_norm"];
    EXPECT_NEAR(step["loss"], loss, 1e-5 * loss) << recipe;
    EXPECT_NEAR(step["grad_norm"], norm, 1e-4 * norm) << recipe;
  }
}

// Of each the part that alone is more than there is, in GB, as one reckons it by hand: bytes of a parameter
// are 4 of its master, 4 of its gradient, 8 of its moments, 2 of its copy in bfloat16. A layer's row of
// Llama 3.1 8B, kept whole, is 2 · (input 4096, q 4096, k and v 2 · 1024, context 4096, out 4096, gate and up
// 2 · 14336).
struct Misfit {
  const char* why;
  const char* keys;
  const char* hardware;
  std::string memory;  // of which there is too little, "device" or "host"
  double gb;
  double of_gb;  // the machine's
};
constexpr double kRowGb = 2 * (4096 + 4096 + 2 * 1024 + 4096 + 4096 + 2 * 14336) / 1e9;
constexpr double k14MRows = 14680064.0 / 64;

TEST(PublishedTest, WhatCannotFitDoesNot) {
  const Misfit misfits[] = {
      {"8.03 billion parameters with optimizer on one device",
       "model_path=llama3.1-8b max_target_length=65536", "h100", "device", 8.03 * 18, 86},
      {"70.6 billion parameters in eight shards",
       "model_path=llama3.1-70b max_target_length=65536 ranks=8 shard_parameters=true", "h100", "device",
       70.6 * 18 / 8, 86},
      {"1M over eight devices, everything kept",
       "model_path=llama3.1-8b max_target_length=1048576 ranks=8 shard_parameters=true "
       "remat_policy=minimal_with_context",
       "h200", "device", 1048576 / 8 * 32 * kRowGb, 151},
      {"1M over 16 devices, everything kept",
       "model_path=llama3.1-8b max_target_length=1048576 ranks=16 shard_parameters=true "
       "remat_policy=minimal_with_context",
       "tpu-v5p", "device", 1048576 / 16 * 32 * kRowGb, 102},
      {"14M: inputs and attention's outputs of 32 layers on the device",
       "model_path=llama3.1-8b-16-4-256 max_target_length=14680064 ranks=64 shard_parameters=true "
       "remat_policy=custom context=device",
       "tpu-v5p", "device", k14MRows * 32 * 2 * (4096 + 4096) / 1e9, 102},
      {"14M: the same with the host, a quarter of whose memory is the chip's",
       "model_path=llama3.1-8b-16-4-256 max_target_length=14680064 ranks=64 shard_parameters=true "
       "remat_policy=custom context=offload decoder_layer_input=offload",
       "tpu-v5p", "host", k14MRows * 32 * 2 * (4096 + 4096) / 1e9, 448 / 4},
  };
  for (const Misfit& m : misfits) {
    const nlohmann::json plan = PlanOf(m.keys, m.hardware);
    EXPECT_GT(m.gb, m.of_gb) << m.why;
    EXPECT_EQ(plan["fits"], false) << m.why;
    EXPECT_TRUE(plan["misfit"].get<std::string>().starts_with(m.memory)) << m.why << ": " << plan["misfit"];
    EXPECT_GE(plan[m.memory + "_memory_bytes"].get<double>(), 0.99e9 * m.gb) << m.why;
    EXPECT_LE(plan[m.memory + "_memory_limit"].get<double>(), 1.001e9 * m.of_gb) << m.why;
  }
}

}  // namespace
}  // namespace longspan
