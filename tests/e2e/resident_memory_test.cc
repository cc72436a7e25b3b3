// What a run is said to take is what its process takes: its anonymous resident memory, as the system counts
// it, against the dry run's sum over ranks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/run_config.h"
#include "core/file.h"
#include "support/files.h"
#include "support/runs.h"
#include "train/replica.h"

namespace longspan {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// RssAnon of a process, bytes; 0 once it has ended.
int64_t AnonymousBytes(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  int64_t kibibytes = 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) kibibytes = std::stoll(line.substr(line.find(':') + 1));
  return kibibytes << 10;
}

struct Measured {
  int exit_code = -1;
  std::string output;
  int64_t peak_bytes = 0;
};

// Runs the program and looks at it every millisecond until it ends.
Measured RunMeasured(const std::vector<std::string>& arguments, const std::string& log) {
  std::vector<char*> words = {const_cast<char*>(LONGSPAN_PROGRAM), const_cast<char*>("train")};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execv(words[0], words.data());
    _exit(127);
  }
  Measured measured;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    measured.peak_bytes = std::max(measured.peak_bytes, AnonymousBytes(pid));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  measured.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  measured.output = ReadTextFile(log);
  return measured;
}

class ResidentMemory : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  }

  ResidentMemory() {
    std::filesystem::create_directory(directory_ / "tier");
    testing::WriteDocuments(directory_ / "long.jsonl", {65536, 65536}, 256);
    testing::WriteDocuments(directory_ / "short.jsonl", std::vector<int64_t>(140, 1000), 256);
  }

  void ExpectWhatIsSaid(std::vector<std::string> arguments) {
    for (const char* common : {"steps=2", "peak_tflops=1", "enable_checkpointing=false", "run_name=a"})
      arguments.emplace_back(common);
    arguments.push_back("base_output_directory=" + (directory_ / "runs"));
    const Job job = PrepareJob(LoadTrainConfig(arguments));
    int64_t said = 0;
    for (int rank = 0; rank < job.mesh.ranks(); ++rank)
      for (const auto& [name, bytes] : RunDry(job, rank).AllMemory()) said += bytes;
    EXPECT_GT(said, 200 * kMiB);  // or nothing would be seen

    const Measured run = RunMeasured(arguments, directory_ / "log");
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const std::string what = fmt::format("{} MiB said, {} MiB resident", said / kMiB, run.peak_bytes / kMiB);
    EXPECT_LE(static_cast<double>(run.peak_bytes), 1.05 * static_cast<double>(said) + 64.0 * kMiB) << what;
    EXPECT_GE(static_cast<double>(run.peak_bytes), 0.9 * static_cast<double>(said)) << what;
    RecordProperty("resident", what);
  }

  std::vector<std::string> Tiny(const std::string& data, std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"model_path=tiny", "data_path=" + (directory_ / data)});
    return more;
  }

  testing::TemporaryDirectory directory_;
};

const std::string kLength = "max_target_length=65536", kMask = "attention_mask=sliding_window",
                  kWindow = "sliding_window_size=128";

TEST_F(ResidentMemory, OfOneDocument) { ExpectWhatIsSaid(Tiny("long.jsonl", {kLength, kMask, kWindow})); }

TEST_F(ResidentMemory, OfPackedDocuments) {
  ExpectWhatIsSaid(Tiny("short.jsonl", {kLength, "remat_policy=minimal_with_context"}));
}

TEST_F(ResidentMemory, OfPasses) {
  ExpectWhatIsSaid(Tiny("short.jsonl", {"max_target_length=131072", "tokens_per_pass=65536"}));
}

TEST_F(ResidentMemory, WithOffloadingToADisk) {
  ExpectWhatIsSaid(Tiny("long.jsonl", {kLength, kMask, kWindow, "ranks=2", "remat_policy=minimal_offloaded",
                                       "offload_directory=" + (directory_ / "tier")}));
}

TEST_F(ResidentMemory, WithOffloadingToTheHost) {
  ExpectWhatIsSaid(Tiny("long.jsonl", {kLength, kMask, kWindow, "remat_policy=minimal_offloaded"}));
}

// Weights, gradients and optimizer of 21 million parameters outweigh the rest.
TEST_F(ResidentMemory, OfShardedWeights) {
  ModelConfig model = testing::TinyConfig();
  model.vocab_size = 8192;
  model.hidden_size = 512;
  model.intermediate_size = 1408;
  model.head_dim = 64;
  model.attention_scale = 0.125;
  model.initializer_range = 0.02;
  model.max_position_embeddings = 4096;
  model.SetNumLayers(4);
  testing::WriteModel(directory_ / "model", model, /*seed=*/1);
  ExpectWhatIsSaid({"model_path=" + (directory_ / "model"), "data_path=" + (directory_ / "long.jsonl"),
                    "max_target_length=2048", "ranks=2", "shard_parameters=true"});
}

}  // namespace
}  // namespace longspan
