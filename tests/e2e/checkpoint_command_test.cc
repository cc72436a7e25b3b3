// What a person sees of checkpoints: damaged ones are passed over, a disk that is full is said, and what a
// save takes is in the reports.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/program.h"
#include "support/runs.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::RunProgram;
using testing::RunShell;

class Checkpoints : public ::testing::Test {
 protected:
  Checkpoints() {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 200; ++i) text << "line " << i << " says " << i * i * 7 % 101 << "\n";
  }
  std::string Arguments(const std::string& run, int steps, const std::string& more = "") const {
    return fmt::format(
        "train model_path=tiny data_path={0}/text.txt base_output_directory={0} run_name={1} "
        "max_target_length=200 steps={2} learning_rate_schedule_steps=8 learning_rate=3e-3 "
        "checkpoint_period=2 ranks=2 shard_parameters=true threads_per_rank=1 peak_tflops=1 {3}",
        directory_.path(), run, steps, more);
  }
  ProgramResult Train(const std::string& run, int steps, const std::string& more = "") const {
    return RunProgram(Arguments(run, steps, more));
  }
  std::string Checkpoint(const std::string& run, const std::string& name) const {
    return directory_ / (run + "/checkpoints/" + name);
  }
  std::set<std::string> Folder(const std::string& run) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_ / (run + "/checkpoints")))
      names.insert(entry.path().filename());
    return names;
  }
  static void Damage(const std::string& path) {
    std::string text = ReadTextFile(path);
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
    testing::WriteText(path, text);
  }
  static void ExpectIn(const ProgramResult& result, int exit_code, std::initializer_list<std::string> parts) {
    EXPECT_EQ(result.exit_code, exit_code) << result.output;
    for (const std::string& part : parts)
      EXPECT_NE(result.output.find(part), std::string::npos) << result.output << "\nlacks: " << part;
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(Checkpoints, DamagedOnesArePassedOver) {
  ASSERT_EQ(Train("straight", 8).exit_code, 0);
  ASSERT_EQ(Train("run", 6).exit_code, 0);
  Damage(Checkpoint("run", "00000006/optimizer.safetensors"));
  fs::remove(Checkpoint("run", "00000004/state.json"));
  fs::create_directory(Checkpoint("run", ".tmp-00000008"));
  ExpectIn(Train("run", 8, "resume=" + Checkpoint("run", "00000006")), 3,
           {Checkpoint("run", "00000006/optimizer.safetensors") + ": its CRC-32 is ", " says "});
  ExpectIn(
      Train("run", 8, "resume=auto"), 0,
      {"skipped   " + Checkpoint("run", "00000006") +
           ", which is damaged: " + Checkpoint("run", "00000006/optimizer.safetensors") + ": its CRC-32 is ",
       "skipped   " + Checkpoint("run", "00000004") +
           ", which is damaged: " + Checkpoint("run", "00000004/state.json") + ": No such file or directory",
       "resume    " + Checkpoint("run", "00000002") + "\n"});
  testing::ExpectSameRun(directory_ / "run", directory_ / "straight");
  EXPECT_EQ(Folder("run"), (std::set<std::string>{"00000002", "00000004", "00000006", "00000008", "latest"}));

  // None is left: not a fresh start.
  for (const char* name : {"00000002", "00000004", "00000006", "00000008"})
    Damage(Checkpoint("run", std::string(name) + "/model.safetensors"));
  ExpectIn(Train("run", 9, "resume=auto"), 3, {"all 4 checkpoints", "are damaged", "another run_name"});
  EXPECT_EQ(testing::ReadMetrics(directory_ / "run").size(), 8u);
}

// What was being written when a run was killed, and a link to what is gone.
TEST_F(Checkpoints, TheLinkAloneIsLost) {
  ASSERT_EQ(Train("run", 6).exit_code, 0);
  fs::remove_all(Checkpoint("run", "00000006"));
  ExpectIn(Train("run", 8, "resume=auto"), 0,
           {"skipped   " + Checkpoint("run", "00000006"), "is no folder",
            "resume    " + Checkpoint("run", "00000004") + "\n"});
}

TEST_F(Checkpoints, AFullDiskEndsTheRunOrIsAWarning) {
  const std::string limit = "ulimit -f 1000; ";  // blocks of 512 or 1,024 bytes: the files have more
  ExpectIn(RunShell(limit + "\"$longspan\" " + Arguments("stop", 8) + " 2>&1 </dev/null"), 4,
           {"error: the checkpoint of step 2 was not saved: rank 0: cannot write '",
            ".safetensors': File too large", "those before it are as they were"});
  EXPECT_EQ(Folder("stop"), std::set<std::string>());
  ExpectIn(RunShell(limit + "\"$longspan\" " + Arguments("continue", 8, "on_checkpoint_error=continue") +
                    " 2>&1 </dev/null"),
           4,
           {"longspan: warning: the checkpoint of step 2 was not saved: rank 0: cannot write '",
            "longspan: warning: the checkpoint of step 6 ",
            "error: the checkpoint of step 8, the last one, was not saved: rank 0: cannot write '"});
  EXPECT_EQ(testing::ReadMetrics(directory_ / "continue").size(), 8u);
  EXPECT_EQ(Folder("continue"), std::set<std::string>());
  ExpectIn(Train("continue", 8, "resume=auto"), 0, {"step 8/8"});
}

TEST_F(Checkpoints, WhatASaveTakesIsReported) {
  ExpectIn(Train("run", 2, "max_num_checkpoints_to_keep=1"), 0, {"\nsaves ", "checkpoint_snapshot"});
  const ProgramResult none = Train("none", 2, "enable_checkpointing=false");
  ExpectIn(none, 0, {"\nmemory "});
  EXPECT_EQ(none.output.find("checkpoint_snapshot"), std::string::npos) << none.output;
  const auto plan = [&](const std::string& more) {
    const ProgramResult result =
        RunProgram("plan model_path=tiny max_target_length=200 ranks=2 hardware=h100 --format=json " + more);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return nlohmann::json::parse(result.output);
  };
  const auto whole = plan(""), without = plan("enable_checkpointing=false");
  EXPECT_EQ(whole["host_memory_bytes"].get<int64_t>() - without["host_memory_bytes"].get<int64_t>(),
            whole["host_memory"]["checkpoint_snapshot"].get<int64_t>());
  EXPECT_FALSE(without["host_memory"].contains("checkpoint_snapshot"));
}

}  // namespace
}  // namespace longspan
