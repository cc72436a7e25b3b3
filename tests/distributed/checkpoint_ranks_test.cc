// Checkpoints of many ranks, written by all of them while they train: the bytes are those of one rank that
// stopped for it, and any ranks go on from them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/thread_comm.h"
#include "model/params.h"
#include "support/expect_error.h"
#include "support/failing_disk.h"
#include "support/files.h"
#include "support/runs.h"
#include "support/tiny.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_saver.h"
#include "train/checkpoint_verify.h"
#include "train/replica.h"
#include "train/trainer.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;

// Units of 1 to 6 blocks of 4,096 elements, the last of which are not full.
ModelConfig Model() {
  ModelConfig config = testing::TiedTinyConfig(true);
  config.vocab_size = 400;
  config.intermediate_size = 260;
  return config;
}

// Ranks of a run, and what they have of the weights.
struct Ranks {
  int64_t ranks, data, fsdp;
  bool sharded;
  const char* strategy;
  std::string ToString() const {
    return fmt::format("{} ranks, data {} × fsdp {}, {}, {}", ranks, data, fsdp,
                       sharded ? "sharded" : "whole", strategy);
  }
};
const std::vector<Ranks> kRanks = {
    {1, 1, 1, false, "ring"},      {2, 1, 1, false, "ulysses"},   {2, 2, 1, false, "ring"},
    {2, 1, 2, true, "ring"},       {3, 1, 1, true, "all_gather"}, {4, 2, 1, true, "ring"},
    {4, 1, 2, true, "usp"},        {4, 4, 1, false, "ring"},      {5, 1, 1, false, "ring"},
    {5, 1, 1, true, "all_gather"}, {6, 2, 1, true, "ring"},       {7, 1, 1, true, "ring"},
    {8, 1, 1, false, "usp"},       {8, 2, 2, true, "ring"},       {8, 1, 4, true, "ulysses"}};

// A disk on which everything takes long, unevenly.
class SlowDisk final : public FileCalls {
 public:
  ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const override {
    std::this_thread::sleep_for(std::chrono::microseconds(offset % 7 == 0 ? 2000 : 200));
    return FileCalls::Write(fd, data, bytes, offset);
  }
};

class CheckpointRanks : public ::testing::Test {
 protected:
  CheckpointRanks() {
    testing::WriteModel(directory_ / "model", Model(), /*seed=*/7);
    testing::WriteDocuments(directory_ / "data.jsonl", {7, 20, 3, 11, 70, 16, 25, 9, 14}, 400);
  }

  TrainConfig Config(const Ranks& r, const std::string& run_name) const {
    TrainConfig config =
        testing::PlainConfig(directory_ / "model", directory_ / "data.jsonl", directory_ / "runs");
    config.run_name = run_name;
    config.max_target_length = 30;
    config.learning_rate = 1e-2;
    config.warmup_steps_fraction = 0.3;
    config.steps = 4;
    config.learning_rate_schedule_steps = 4;
    config.global_batch_size = 4;
    config.ranks = r.ranks;
    config.data_parallelism = r.data;
    config.fsdp_parallelism = r.fsdp;
    config.shard_parameters = r.sharded;
    config.context_parallel_strategy = {{"", r.strategy}};
    return config;
  }
  std::string Train(const TrainConfig& config, const IoHooks& hooks = {}) const {
    Job job = PrepareJob(config);
    job.io_hooks = hooks;
    return testing::TrainQuietly(job);
  }
  std::string Run(const std::string& name) const { return directory_ / ("runs/" + name); }
  std::string Checkpoint(const std::string& run, int64_t step) const {
    return Run(run) + "/checkpoints/" + CheckpointName(step);
  }
  std::set<std::string> Checkpoints(const std::string& run) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(Run(run) + "/checkpoints"))
      names.insert(entry.path().filename());
    return names;
  }
  static std::map<std::string, std::string> Files(const std::string& directory) {
    std::map<std::string, std::string> files;
    for (const auto& file : fs::directory_iterator(directory))
      files[file.path().filename()] = ReadTextFile(file.path());
    return files;
  }

  testing::TemporaryDirectory directory_;
};

// Read by any ranks and written again, every byte is as before.
TEST_F(CheckpointRanks, FilesDoNotDependOnRanks) {
  TrainConfig config = Config(kRanks[0], "first");
  config.steps = 2;  // moments as well
  Train(config);
  const std::string first = Checkpoint("first", 2), folder = directory_ / "copies";
  const CheckpointState state = ReadCheckpointState(first + "/state.json", "adamw");
  std::map<std::string, std::string> wanted = Files(first);
  for (const bool splits : {false, true}) {
    for (size_t i = 0; i < kRanks.size(); ++i) {
      SCOPED_TRACE(kRanks[i].ToString());
      const Job job = PrepareJob(Config(kRanks[i], "unused"));
      SaveOptions options = {.config_json = wanted.at("config.json")};
      if (splits) {
        options.max_shard_bytes = 20000;
        options.dtype = DType::kBFloat16;
      }
      RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
        Replica replica(job, MakeCpuBackend(1), world);
        CheckpointSaver saver(folder, replica.weights(), *replica.snapshot(), world, options, {});
        const AbortOnUnwind guard(world);
        VerifyCheckpoint(first, world);
        LoadCheckpoint(first, replica.weights());
        saver.Start(state);
        EXPECT_EQ(saver.Wait()->error, "");
        EXPECT_FALSE(saver.Wait());
        VerifyCheckpoint(LatestCheckpoint(folder), world);
      });
      const auto files = Files(LatestCheckpoint(folder));
      if (splits && i == 0) wanted = files;
      EXPECT_GE(files.size(), splits ? 9u : 5u);
      ASSERT_EQ(files.size(), wanted.size());
      for (const auto& [name, bytes] : wanted) EXPECT_TRUE(files.at(name) == bytes) << name;
    }
  }
}

// What is written while training goes on is what a run that ends there writes.
TEST_F(CheckpointRanks, TrainingDuringASaveChangesNothing) {
  const SlowDisk disk;
  for (const size_t i : {size_t{0}, size_t{3}, size_t{5}, size_t{13}}) {
    SCOPED_TRACE(kRanks[i].ToString());
    TrainConfig slow = Config(kRanks[i], fmt::format("slow{}", i));
    slow.checkpoint_period = 2;
    slow.steps = 5;
    Train(slow, {.before_each = [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); },
                 .file_calls = &disk});
    for (const int64_t step : {2, 4, 5}) {
      TrainConfig stopped = Config(kRanks[i], fmt::format("stopped{}-{}", i, step));
      stopped.steps = step;
      Train(stopped);
      EXPECT_TRUE(Files(Checkpoint(slow.run_name, step)) == Files(Checkpoint(stopped.run_name, step)))
          << step;
    }
  }
}

// A sample of pairs of meshes: right after loading the weights are what was saved, bit for bit; then the same
// sequences follow, and the same losses within rounding.
TEST_F(CheckpointRanks, AnyRanksGoOnFromAnyOthers) {
  const std::string straight = Train(Config(kRanks[0], "straight"));
  const std::vector<nlohmann::json> wanted = testing::ReadMetrics(straight);
  const std::string wanted_state = ReadTextFile(Checkpoint("straight", 4) + "/state.json");
  const CounterRandom random(11, "pairs");
  for (uint64_t pair = 0; pair < 20; ++pair) {
    const Ranks &from = kRanks[random.Below(kRanks.size(), 2 * pair)],
                &to = kRanks[random.Below(kRanks.size(), 2 * pair + 1)];
    SCOPED_TRACE(fmt::format("from {} to {}", from.ToString(), to.ToString()));
    const std::string name = fmt::format("pair{}", pair);
    TrainConfig first = Config(from, name), then = Config(to, name);
    first.steps = 2;
    then.resume = "auto";
    Train(first);
    const std::string checkpoint = Checkpoint(name, 2);

    TrainConfig look = then;
    look.enable_checkpointing = false;
    const auto saved = testing::ReadWeights(checkpoint);
    const ParamTable table = MakeParamTable(Model());
    size_t num_seen = 0;
    TakeStep(PrepareJob(look), checkpoint, [&](SeenTensor which, int unit, Tensor flat) {
      if (which != SeenTensor::kWeightsBefore) return;
      const ParamUnit& rows = table.units[static_cast<size_t>(unit)];
      const std::vector<Tensor> loaded = StoredViews(rows, flat);
      for (size_t i = 0; i < loaded.size(); ++i, ++num_seen) {
        const std::vector<float>& values = saved.at(rows.stored[i].name);
        ASSERT_EQ(loaded[i].num_elements(), std::ssize(values));
        EXPECT_TRUE(std::equal(values.begin(), values.end(), loaded[i].data<float>())) << rows.stored[i].name;
      }
    });
    EXPECT_EQ(num_seen, saved.size());

    Train(then);
    const std::vector<nlohmann::json> got = testing::ReadMetrics(Run(name));
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(got[i]["loss"].get<double>() / wanted[i]["loss"].get<double>(), 1, 1e-5)
          << "step " << i + 1;
    EXPECT_EQ(ReadTextFile(Checkpoint(name, 4) + "/state.json"), wanted_state);
  }
}

class CheckpointErrors : public CheckpointRanks, public ::testing::WithParamInterface<size_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CheckpointErrors, ::testing::Values(0, 3, 5),
                         [](const auto& param) { return fmt::format("case_{}", param.param); });

// A disk that has room for the first save only.
TEST_P(CheckpointErrors, EndTheRunAndLeaveTheCheckpointBefore) {
  testing::FailingDisk disk;
  TrainConfig config = Config(kRanks[GetParam()], "run");
  config.steps = 2;
  Train(config, {.file_calls = &disk});
  const auto before = Files(Checkpoint("run", 2));
  config.steps = 8;
  config.checkpoint_period = 1;
  config.resume = "auto";
  // Of any file, by any rank.
  for (const int64_t good_writes : {0, 1, 10, 40, 80}) {
    disk.good_writes = good_writes;
    ExpectError(
        {"the checkpoint of step 3 was not saved: rank ", "cannot write", Checkpoint("run", 3).substr(0, 20),
         "No space left on device", "those before it are as they were"},
        [&] { Train(config, {.file_calls = &disk}); }, ExitCode::kResource);
    EXPECT_EQ(Checkpoints("run"), (std::set<std::string>{"00000002", "latest"}));
    EXPECT_EQ(fs::read_symlink(Run("run") + "/checkpoints/latest"), "00000002");
    EXPECT_TRUE(Files(Checkpoint("run", 2)) == before);
  }
  disk.good_writes = 1'000'000;
  Train(config, {.file_calls = &disk});
  EXPECT_EQ(testing::ReadMetrics(Run("run")).size(), 8u);
}

// The other way: training goes on, and later saves do well.
TEST_P(CheckpointErrors, AreAWarningWhereTheRunShallGoOn) {
  testing::FailingDisk disk;
  TrainConfig config = Config(kRanks[GetParam()], "run");
  config.steps = 6;
  config.checkpoint_period = 2;
  config.on_checkpoint_error = "continue";
  disk.good_reserves = 0;
  // The first save fails, and then there is room again.
  ::testing::internal::CaptureStderr();
  Train(config, {.before_each =
                     [&] {
                       if (disk.good_reserves < 0) disk.good_reserves = 1'000'000;
                     },
                 .file_calls = &disk});
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(std::regex_search(
      warnings, std::regex("longspan: warning: the checkpoint of step 2 was not saved: rank 0: cannot write "
                           "'.*safetensors': No space left on device.*\n")))
      << warnings;
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 1) << warnings;
  EXPECT_EQ(Checkpoints("run"), (std::set<std::string>{"00000004", "00000006", "latest"}));
  Train(Config(kRanks[GetParam()], "straight"));

  // Where the last one fails, the run has not done what it was asked.
  config.steps = 8;
  config.resume = "auto";
  disk.good_syncs = 0;
  ::testing::internal::CaptureStderr();
  ExpectError(
      {"the checkpoint of step 8, the last one, was not saved", "Input/output error", "resume=auto"},
      [&] { Train(config, {.file_calls = &disk}); }, ExitCode::kResource);
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(testing::ReadMetrics(Run("run")).size(), 8u);
  EXPECT_EQ(Checkpoints("run"), (std::set<std::string>{"00000004", "00000006", "latest"}));
}

// One from which nothing can be read any more once a share of a checkpoint is being written, so that every
// rank has its snapshot; the writing takes long.
class BreakingDisk final : public FileCalls {
 public:
  ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const override {
    struct stat status = {};
    EXPECT_EQ(fstat(fd, &status), 0);
    // What is offloaded goes to a file without a name; what the first rank writes before the shares begins a
    // file.
    if (status.st_nlink > 0 && offset > 0) saves_ = true;
    if (saves_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return FileCalls::Write(fd, data, bytes, offset);
  }
  ssize_t Read(int fd, void* data, size_t bytes, int64_t offset) const override {
    if (saves_) return errno = EIO, -1;
    return FileCalls::Read(fd, data, bytes, offset);
  }

 private:
  mutable std::atomic<bool> saves_ = false;
};

// A step that cannot be taken takes nothing from the save before it.
TEST_F(CheckpointRanks, AnErrorInAStepLetsTheSaveEnd) {
  fs::create_directory(directory_ / "tier");
  for (const size_t i : {size_t{0}, size_t{5}}) {
    SCOPED_TRACE(kRanks[i].ToString());
    const BreakingDisk disk;
    TrainConfig config = Config(kRanks[i], fmt::format("run{}", i));
    config.checkpoint_period = 2;
    config.optimizer_memory_host_offload = true;
    config.offload_directory = directory_ / "tier";
    ExpectError(
        {"cannot read", "offload_directory"}, [&] { Train(config, {.file_calls = &disk}); },
        ExitCode::kResource);
    EXPECT_LT(testing::ReadMetrics(Run(config.run_name)).size(), 4u);
    EXPECT_EQ(Checkpoints(config.run_name), (std::set<std::string>{"00000002", "latest"}));
    RunThreadRanks(2, [&](Comm& world) { VerifyCheckpoint(Checkpoint(config.run_name, 2), world); });
  }
}

}  // namespace
}  // namespace longspan
