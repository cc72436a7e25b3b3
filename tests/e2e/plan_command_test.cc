// `longspan plan` as a person runs it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/program.h"

namespace longspan {
namespace {

using namespace testing;

constexpr const char* kCase = "model_path=llama3.1-8b max_target_length=131072 ranks=8 hardware=h100";

nlohmann::json PlanOf(const std::string& arguments) {
  const ProgramResult result = RunProgram("plan " + arguments + " --format json");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return nlohmann::json::parse(result.output);
}

void ExpectFailure(const std::string& arguments, std::initializer_list<std::string_view> parts) {
  const ProgramResult result = RunProgram("plan " + arguments);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  for (const std::string_view part : parts)
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
}

TEST(PlanCommandTest, JsonHasWhatATableSays) {
  const nlohmann::json plan = PlanOf(kCase);
  EXPECT_EQ(plan["fits"], false);  // 8 billion parameters with their optimizer on each device
  EXPECT_NE(plan["misfit"].get<std::string>().find("device memory"), std::string::npos);
  int64_t memory = 0;
  for (const auto& [name, bytes] : plan["memory"].items()) memory += bytes.get<int64_t>();
  EXPECT_EQ(plan["device_memory_bytes"], memory);
  EXPECT_GT(plan["step_seconds"], 1);
  EXPECT_GT(plan["mfu"], 0.1);
  EXPECT_LT(plan["mfu"], 0.8);
  EXPECT_NEAR(plan["mfu"].get<double>(), plan["mfu_maxtext"].get<double>(), 1e-4);
  EXPECT_EQ(plan["bound_by"], "attention");
  EXPECT_EQ(plan["allowed_pairs_by_rank"].size(), 8u);
  EXPECT_GT(plan["tokens_per_second_per_device"], 0);
  EXPECT_GT(plan["host_memory_bytes"], 0);

  const ProgramResult table = RunProgram(std::string("plan ") + kCase);
  EXPECT_EQ(table.exit_code, 0) << table.output;
  for (const char* part : {"does not fit", "bound by attention", "MFU", "optimizer", "8 devices"})
    EXPECT_NE(table.output.find(part), std::string::npos) << table.output;
}

TEST(PlanCommandTest, PackedDocumentsCostLess) {
  const nlohmann::json whole = PlanOf(kCase), packed = PlanOf(std::string(kCase) + " document_length=8192");
  EXPECT_LT(packed["step_seconds"], whole["step_seconds"]);
  EXPECT_EQ(packed["context_parallel_layout"], "striped");
  EXPECT_EQ(whole["context_parallel_layout"], "zigzag");
  EXPECT_LT(packed["mfu"], packed["mfu_maxtext"]);
  EXPECT_EQ(packed["device_memory_bytes"], whole["device_memory_bytes"]);  // does not depend on documents
}

// Passes end where documents end; a folder of another machine need not be on this one.
TEST(PlanCommandTest, PassesAndOffloading) {
  const std::string passes =
      "model_path=tiny max_target_length=1048576 ranks=2 hardware=h100 tokens_per_pass=65536";
  const nlohmann::json packed = PlanOf(passes + " document_length=8192");
  const nlohmann::json one_pass =
      PlanOf("model_path=tiny max_target_length=65536 ranks=2 hardware=h100 document_length=8192");
  EXPECT_EQ(packed["memory"]["step.hidden"], one_pass["memory"]["step.hidden"]);
  EXPECT_NEAR(packed["allowed_pairs_by_rank"][0].get<double>(),
              16 * one_pass["allowed_pairs_by_rank"][0].get<double>(), 1);
  EXPECT_NEAR(packed["seconds"]["attention"].get<double>(),
              16 * one_pass["seconds"]["attention"].get<double>(), 1e-9);
  ExpectFailure(passes, {"tokens_per_pass", "document_length"});

  const nlohmann::json disk = PlanOf(
      "model_path=tiny max_target_length=65536 ranks=2 hardware=h100 remat_policy=minimal_offloaded "
      "offload_directory=/not/here");
  EXPECT_GT(disk["disk"]["activations.mlpwi_0"], 0);
  EXPECT_GT(disk["disk_bytes"], 0);
}

TEST(PlanCommandTest, ReadsRecipesAndHardwareFiles) {
  const TemporaryDirectory directory;
  const std::string recipe =
      WriteText(directory / "run.yml",
                "model_path: tiny\ndata_path: not-here.txt\nmax_target_length: 4096\nranks: 2\n");
  const std::string text = ReadTextFile(LONGSPAN_SOURCE_DIR "/recipes/hardware/tpu7.yml");
  const std::string mine = WriteText(directory / "mine.yml", text);
  EXPECT_EQ(PlanOf(recipe + " hardware=tpu7"), PlanOf(recipe + " hardware=" + mine));
  ExpectFailure(recipe + " hardware=" + WriteText(directory / "bad.yml", text + "link_gbp: 3\n"),
                {"bad.yml:", "'link_gbp'", "link_gbps"});
  ExpectFailure(recipe + " hardware=" + WriteText(directory / "less.yml", "hardware_name: less\n"),
                {"device_memory_gib"});
}

TEST(PlanCommandTest, EveryKnownMachinePlans) {
  for (const char* name : {"tpu-v5p", "tpu7", "h100", "h200", "b200"}) {
    const nlohmann::json plan =
        PlanOf(fmt::format("model_path=tiny max_target_length=65536 ranks=8 hardware={}", name));
    EXPECT_EQ(plan["hardware"], name);
    EXPECT_EQ(plan["fits"], true) << name;
  }
}

TEST(PlanCommandTest, ErrorsSayWhatToDo) {
  ExpectFailure("model_path=tiny", {"hardware", "tpu-v5p", "h100"});
  ExpectFailure("model_path=tiny hardware=h10", {"'h10'", "h100"});
  ExpectFailure("hardware=h100", {"model_path", "llama3.1-8b"});
  ExpectFailure("model_path=tiny hardware=h100 document_length=-1", {"document_length"});
}

TEST(PlanCommandTest, WritesATrace) {
  const TemporaryDirectory directory;
  const std::string path = directory / "trace.json";
  const ProgramResult result = RunProgram(
      fmt::format("plan model_path=tiny max_target_length=8192 ranks=4 hardware=h100 --trace {}", path));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json trace = nlohmann::json::parse(ReadTextFile(path));
  std::set<std::string> names;
  for (const auto& event : trace["traceEvents"]) names.insert(event["name"].get<std::string>());
  for (const char* name : {"matmul", "attention", "attention backward", "send", "adamw"})
    EXPECT_TRUE(names.contains(name)) << name;
}

}  // namespace
}  // namespace longspan
