// A limit on a rank's memory, and what is chosen to keep to it, as a person sees them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "support/files.h"
#include "support/program.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::RunProgram;

// Between each two of `marks` of a text, what stands there.
std::vector<std::string> SplitAt(const std::string& text, const std::string& mark) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(mark, begin)) != std::string::npos; begin = end + mark.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

class MemoryBudgetProgram : public ::testing::Test {
 protected:
  MemoryBudgetProgram() {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 3000; ++i) text << "line " << i * i << " of the text\n";
  }

  // A run that lasts two steps, on two ranks unless `more` says something else.
  std::string Words(const std::string& name, const std::string& more) const {
    std::string words = fmt::format(
        "train model_path=tiny-4-layers data_path={0}/text.txt base_output_directory={0}/runs run_name={1} "
        "threads_per_rank=1 peak_tflops=1 {2}",
        directory_.path(), name, more);
    for (const auto& [key, value] : {std::pair("ranks", "2"), std::pair("max_target_length", "2048"),
                                     std::pair("steps", "2"), std::pair("warmup_steps_fraction", "0")})
      if (more.find(fmt::format("{}=", key)) == std::string::npos) words += fmt::format(" {}={}", key, value);
    return words;
  }
  ProgramResult Run(const std::string& name, const std::string& more) const {
    return RunProgram(Words(name, more));
  }
  // Of a run that went well.
  std::vector<nlohmann::json> Metrics(const std::string& name, const std::string& more) const {
    const ProgramResult run = Run(name, more);
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return testing::ReadMetrics(directory_ / ("runs/" + name));
  }
  std::string ConfigOf(const std::string& name) const {
    return ReadTextFile(directory_ / ("runs/" + name + "/config.yml"));
  }

  testing::TemporaryDirectory directory_;
};

int64_t PeakOf(const std::vector<nlohmann::json>& metrics) {
  return metrics.at(0)["memory_peak_bytes"].get<int64_t>();
}

// To the byte: what a run has taken is a limit that it keeps to, and a byte less is refused, before anything
// is written, with keys each of which is enough.
TEST_F(MemoryBudgetProgram, ALimitIsKeptOrRefused) {
  const std::vector<nlohmann::json> free = Metrics("free", "");
  const std::vector<nlohmann::json> kept =
      Metrics("kept", fmt::format("device_memory_limit={}", PeakOf(free)));
  EXPECT_EQ(PeakOf(kept), PeakOf(free));
  EXPECT_EQ(kept.at(1)["loss"], free.at(1)["loss"]);

  const std::string limit = fmt::format("device_memory_limit={}", PeakOf(free) - 1);
  const ProgramResult refused = Run("refused", limit);
  EXPECT_EQ(refused.exit_code, 4) << refused.output;
  EXPECT_FALSE(fs::exists(directory_ / "runs/refused"));
  for (const char* part : {"device_memory_limit", "the largest of it are", "MiB", "it fits with"})
    EXPECT_NE(refused.output.find(part), std::string::npos) << refused.output;
  const std::string advice = refused.output.substr(refused.output.find("it fits with ") + 13);
  const std::vector<std::string> keys = SplitAt(advice.substr(0, advice.find('\n')), "; or with ");
  ASSERT_EQ(keys.size(), 4u) << advice;  // the policy, shards, ranks, a shorter sequence
  EXPECT_EQ(keys[0], "remat_policy=custom context=device");
  EXPECT_EQ(keys[1], "shard_parameters=true");
  EXPECT_EQ(keys[2], "ranks=4 context_parallelism=4");
  EXPECT_TRUE(keys[3].starts_with("max_target_length=")) << keys[3];
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::vector<nlohmann::json> run = Metrics(fmt::format("advice{}", i), limit + " " + keys[i]);
    EXPECT_LT(PeakOf(run), PeakOf(free)) << keys[i];
    if (i >= 2) continue;
    EXPECT_EQ(run.at(1)["loss"], free.at(1)["loss"]) << keys[i];
  }
}

TEST_F(MemoryBudgetProgram, NoKeyMayBeEnough) {
  const ProgramResult refused = Run("refused", "device_memory_limit=64KiB");
  EXPECT_EQ(refused.exit_code, 4) << refused.output;
  EXPECT_NE(refused.output.find("take a smaller model"), std::string::npos) << refused.output;
}

TEST_F(MemoryBudgetProgram, ALimitThatIsNoNumberOfBytesIsRefused) {
  for (const char* text : {"24Gib", "-3", "0", "many"}) {
    const ProgramResult run = Run("refused", fmt::format("device_memory_limit={}", text));
    EXPECT_EQ(run.exit_code, 2) << run.output;
    EXPECT_NE(run.output.find(fmt::format("device_memory_limit is '{}'", text)), std::string::npos)
        << run.output;
  }
}

// remat_policy=auto: each rung's memory, the first that fits, to the same bits; config.yml has it, and a run
// that goes on keeps it.
TEST_F(MemoryBudgetProgram, ThePolicyIsChosenByTheLimit) {
  const std::vector<nlohmann::json> free = Metrics("free", "");
  const std::string limit = fmt::format("remat_policy=auto device_memory_limit={}", PeakOf(free) - 1);
  const ProgramResult run = Run("auto", limit);
  EXPECT_EQ(run.exit_code, 0) << run.output;
  for (const char* part : {"chosen    remat_policy, the first that fits", "device memory: ",
                           "fits; chosen: remat_policy=custom context=device", "input offloaded"})
    EXPECT_NE(run.output.find(part), std::string::npos) << run.output;
  const std::vector<nlohmann::json> chosen = testing::ReadMetrics(directory_ / "runs/auto");
  EXPECT_LT(PeakOf(chosen), PeakOf(free));
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(chosen.at(step)["loss"], free.at(step)["loss"]);
    EXPECT_EQ(chosen.at(step)["grad_norm"], free.at(step)["grad_norm"]);
  }
  for (const char* line : {"remat_policy: custom\n", "\ncontext: device\n", "\nquery_proj: remat\n"})
    EXPECT_NE(ConfigOf("auto").find(line), std::string::npos) << ConfigOf("auto");

  // With more memory there would be a cheaper one.
  const ProgramResult more =
      Run("auto", "remat_policy=auto resume=auto steps=3 learning_rate_schedule_steps=2");
  EXPECT_EQ(more.exit_code, 0) << more.output;
  EXPECT_NE(more.output.find("chosen    as before, by "), std::string::npos) << more.output;
  EXPECT_NE(ConfigOf("auto").find("remat_policy: custom\n"), std::string::npos);
  const ProgramResult roomy = Run("roomy", "remat_policy=auto");
  EXPECT_EQ(roomy.exit_code, 0) << roomy.output;
  EXPECT_NE(ConfigOf("roomy").find("remat_policy: minimal_with_context\n"), std::string::npos);

  const ProgramResult none = Run("none", "remat_policy=auto device_memory_limit=64KiB");
  EXPECT_EQ(none.exit_code, 4) << none.output;
  EXPECT_NE(none.output.find("none fits"), std::string::npos) << none.output;
  EXPECT_FALSE(fs::exists(directory_ / "runs/none"));
}

// context_parallel_strategy=auto plans on the machine that is named, and the run is that of any other split.
TEST_F(MemoryBudgetProgram, TheStrategyIsChosenByThePlan) {
  const std::vector<nlohmann::json> one_rank = Metrics("one", "ranks=1");
  const ProgramResult run = Run("auto", "context_parallel_strategy=auto hardware=h100 remat_policy=auto");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  for (const char* part : {"chosen    context_parallel_strategy", "the fastest", "slower, most by",
                           "chosen    remat_policy, the first that fits"})
    EXPECT_NE(run.output.find(part), std::string::npos) << run.output;
  for (const char* key : {"context_parallel_strategy", "remat_policy"})
    EXPECT_EQ(ConfigOf("auto").find(fmt::format("{}: auto", key)), std::string::npos) << ConfigOf("auto");
  const double loss = testing::ReadMetrics(directory_ / "runs/auto").at(1)["loss"];
  EXPECT_NEAR(loss / one_rank.at(1)["loss"].get<double>(), 1, 1e-3);
}

// The machine at hand is planned for as it was measured, and otherwise not.
TEST_F(MemoryBudgetProgram, ThisMachineHasToBeMeasured) {
  const std::string home = fmt::format("XDG_CONFIG_HOME={}/config ", directory_.path());
  const std::string words = Words("auto", "context_parallel_strategy=auto");
  const ProgramResult refused =
      testing::RunShell(home + fmt::format("\"$longspan\" {} 2>&1 </dev/null", words));
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  for (const char* part : {"hardware this", "run `longspan calibrate`", "hardware=NAME"})
    EXPECT_NE(refused.output.find(part), std::string::npos) << refused.output;
  EXPECT_FALSE(fs::exists(directory_ / "runs/auto"));
}

nlohmann::json PlanOf(const std::string& arguments) {
  const ProgramResult result = RunProgram("plan " + arguments + " --format json");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return nlohmann::json::parse(result.output);
}

TEST(MemoryBudgetPlan, TheLesserOfLimitAndMachineCounts) {
  const auto plan_with = [](const std::string& keys) {
    std::map<std::string, std::string> all = {
        {"model_path", "llama3.2-1b"}, {"max_target_length", "65536"}, {"ranks", "8"}, {"hardware", "h100"}};
    for (const std::string& word : SplitAt(keys, " "))
      if (!word.empty()) all[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    std::string words;
    for (const auto& [name, value] : all) words += fmt::format("{}={} ", name, value);
    return PlanOf(words);
  };
  const nlohmann::json free = plan_with("");
  const int64_t needed = free["device_memory_bytes"];
  const nlohmann::json enough = plan_with(fmt::format("device_memory_limit={}", needed)),
                       more = plan_with("device_memory_limit=100TB");
  EXPECT_EQ(enough["fits"], true);
  EXPECT_EQ(enough["device_memory_limit"], needed);
  EXPECT_EQ(enough["would_fit"].size(), 0u);
  EXPECT_EQ(more["device_memory_limit"], free["device_memory_limit"]);

  const std::string limit = fmt::format("device_memory_limit={} ", needed - 1);
  const nlohmann::json less = plan_with(limit);
  EXPECT_EQ(less["fits"], false);
  EXPECT_EQ(less["would_fit"].size(), 4u) << less["would_fit"];
  for (const nlohmann::json& keys : less["would_fit"])
    EXPECT_EQ(plan_with(limit + keys.get<std::string>())["fits"], true) << keys;
}

TEST(MemoryBudgetPlan, ChoosesForTheMachine) {
  const nlohmann::json plan = PlanOf(
      "model_path=llama3.1-8b max_target_length=1048576 ranks=64 hardware=h100 remat_policy=auto "
      "context_parallel_strategy=auto");
  EXPECT_EQ(plan["fits"], true);
  EXPECT_EQ(plan["chosen"]["candidates"][0]["fits"], true);
  EXPECT_EQ(plan["chosen"]["candidates"][0]["step_seconds"], plan["step_seconds"]);
  bool fits = false;
  for (const nlohmann::json& rung : plan["chosen"]["rungs"]) {
    if (fits || !rung["fits"].get<bool>()) continue;
    fits = true;  // the first
    EXPECT_EQ(rung["device_memory_bytes"], plan["device_memory_bytes"]);
    EXPECT_NE(plan["chosen"]["keys"].get<std::string>().find(rung["keys"].get<std::string>()),
              std::string::npos);
  }
  const std::string keys = plan["chosen"]["keys"];
  nlohmann::json by_keys =
      PlanOf("model_path=llama3.1-8b max_target_length=1048576 ranks=64 hardware=h100 " + keys);
  EXPECT_TRUE(by_keys["chosen"].is_null());
  by_keys["chosen"] = plan["chosen"];
  EXPECT_EQ(by_keys, plan);
}

}  // namespace
}  // namespace longspan
