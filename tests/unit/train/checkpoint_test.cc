#include "train/checkpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/file.h"
#include "support/checkpoints.h"
#include "support/expect_error.h"
#include "support/failing_disk.h"
#include "support/files.h"
#include "support/safetensors.h"
#include "support/tiny.h"
#include "train/checkpoint_folder.h"
#include "train/safetensors.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::TemporaryDirectory;
using testing::WriteText;
using Moments = ShardedWeights::Moments;

std::unique_ptr<ShardedWeights> NewWeights(Moments moments = Moments::kAdam, bool tied = false,
                                           DType compute = DType::kBFloat16) {
  return std::make_unique<ShardedWeights>(MakeParamTable(testing::TiedTinyConfig(tied)), compute, moments);
}

// The parameters' elements in a flat tensor, without the gaps between them.
template <class T>
std::vector<T> Elements(const ParamUnit& unit, Tensor flat) {
  std::vector<T> all;
  for (const Tensor& view : UnitViews(unit, flat))
    all.insert(all.end(), view.data<T>(), view.data<T>() + view.num_elements());
  return all;
}

// Everything that a checkpoint must bring back: masters, moments and what the model reads, bit for bit.
std::vector<uint32_t> Bits(ShardedWeights& weights) {
  std::vector<uint32_t> bits;
  for (int u = 0; u < weights.table().num_units(); ++u) {
    const ParamUnit& unit = weights.table().units[static_cast<size_t>(u)];
    const UnitState& state = weights.State(u);
    for (const Tensor& flat : {state.master, state.exp_avg, state.exp_avg_sq})
      if (!flat.IsNull())
        for (const float x : Elements<float>(unit, flat)) bits.push_back(std::bit_cast<uint32_t>(x));
    if (!state.compute.IsNull())
      for (const BFloat16 x : Elements<BFloat16>(unit, state.compute)) bits.push_back(x.bits);
  }
  return bits;
}

std::unique_ptr<ShardedWeights> RandomWeights(Moments moments = Moments::kAdam, uint64_t seed = 1,
                                              bool tied = false) {
  std::unique_ptr<ShardedWeights> weights = NewWeights(moments, tied);
  weights->Initialize(0.3, seed);
  uint64_t index = 0;
  const CounterRandom random(seed, "moments");
  for (int u = 0; u < weights->table().num_units(); ++u)
    for (const Tensor& flat : {weights->State(u).exp_avg, weights->State(u).exp_avg_sq})
      if (!flat.IsNull())
        for (const Tensor& view : UnitViews(weights->table().units[static_cast<size_t>(u)], flat))
          for (int64_t i = 0; i < view.num_elements(); ++i)
            view.data<float>()[i] = static_cast<float>(random.Normal(index++));
  return weights;
}

const std::vector<SourcePosition> kSources = {
    {"a path/books", 0.1, 7, {3, 141, 59265, {}}},
    {"code.jsonl", 1.0 / 3, 8, {0, 1, 2, {{512, 1000}, {1024, 3}}}},
};

CheckpointState StateAt(int64_t step) { return {step, kSources, step + 2}; }

std::set<std::string> FilesIn(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() { options_.config_json = "{\"model_type\": \"llama\"}\n"; }
  void Save(ShardedWeights& weights, int64_t step) const {
    testing::SaveCheckpoint(root_, weights, StateAt(step), options_);
  }
  // The weights of a checkpoint, which must load.
  std::vector<uint32_t> LoadBits(const std::string& directory, Moments moments = Moments::kAdam) const {
    const std::unique_ptr<ShardedWeights> weights = NewWeights(moments);
    LoadCheckpoint(directory, *weights);
    return Bits(*weights);
  }

  TemporaryDirectory directory_;
  std::string root_ = directory_ / "run/checkpoints";
  SaveOptions options_;
};

// Parameters that a family stores as one tensor: the file has that tensor, and loading takes it apart again.
TEST_F(CheckpointTest, FusedTensors) {
  ModelConfig config = testing::TinyConfig();
  ShardedWeights apart(MakeParamTable(config), DType::kFloat32, Moments::kAdam);
  config.fused_projections = true;
  ShardedWeights fused(MakeParamTable(config), DType::kFloat32, Moments::kAdam),
      loaded(MakeParamTable(config), DType::kFloat32, Moments::kAdam);
  for (ShardedWeights* weights : {&apart, &fused}) weights->Initialize(0.3, 1);  // of the parts' own names
  Save(apart, 1);
  Save(fused, 2);
  const auto read = [&](const char* step, const std::string& name) {
    const SafetensorsDirectory files(root_ + step, "model");
    const std::vector<int64_t>& shape = files.Shape(name);
    std::vector<float> values(static_cast<size_t>(shape[0] * shape[1]));
    files.ReadFloat32(name, Tensor(values.data(), DType::kFloat32, shape));
    return values;
  };
  const auto joined = [&](std::initializer_list<const char*> names) {
    std::vector<float> all;
    for (const char* name : names) {
      const std::vector<float> part = read("/00000001", fmt::format("model.layers.1.{}.weight", name));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  EXPECT_EQ(read("/00000002", "model.layers.1.self_attn.qkv_proj.weight"),
            joined({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}));
  EXPECT_EQ(read("/00000002", "model.layers.1.mlp.gate_up_proj.weight"),
            joined({"mlp.gate_proj", "mlp.up_proj"}));
  EXPECT_FALSE(SafetensorsDirectory(root_ + "/00000002", "model").Has("model.layers.1.mlp.up_proj.weight"));
  EXPECT_EQ(SafetensorsDirectory(root_ + "/00000002", "optimizer")
                .Shape("model.layers.0.mlp.gate_up_proj.weight.exp_avg"),
            (std::vector<int64_t>{80, 24}));
  LoadCheckpoint(root_ + "/00000002", loaded);
  EXPECT_TRUE(Bits(loaded) == Bits(fused));
  LoadModelWeights(root_ + "/00000002", loaded);
  EXPECT_TRUE(Bits(loaded) == Bits(fused));
  ExpectError({"no tensor 'model.layers.0.self_attn.q_proj.weight'"},
              [&] { LoadModelWeights(root_ + "/00000002", apart); });
}

TEST_F(CheckpointTest, WhatIsSavedIsLoaded) {
  const auto saved = RandomWeights();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const int64_t max_shard_bytes : {int64_t{1} << 30, int64_t{9000}}) {
      options_.dtype = dtype;
      options_.max_shard_bytes = max_shard_bytes;
      Save(*saved, 100);
      const auto loaded = NewWeights();
      const CheckpointState state = LoadCheckpoint(root_ + "/00000100", *loaded);
      EXPECT_EQ(state.step, 100);
      EXPECT_EQ(state.optimizer_step, 102);
      EXPECT_EQ(state.sources, kSources);
      EXPECT_TRUE(Bits(*loaded) == Bits(*saved));
      // The weights alone, as anybody reads them.
      const auto alone = NewWeights();
      LoadModelWeights(root_ + "/00000100", *alone);
      for (int u = 0; u < saved->table().num_units(); ++u) {
        const ParamUnit& unit = saved->table().units[static_cast<size_t>(u)];
        std::vector<float> expected = Elements<float>(unit, saved->State(u).master);
        if (dtype == DType::kBFloat16)
          for (float& x : expected) x = static_cast<float>(BFloat16(x));
        EXPECT_EQ(Elements<float>(unit, alone->State(u).master), expected);
      }
    }
  }
}

TEST_F(CheckpointTest, AlignmentGapsStayZero) {
  Save(*RandomWeights(), 1);
  const auto loaded = NewWeights();
  LoadCheckpoint(root_ + "/00000001", *loaded);
  int64_t num_gaps = 0;
  for (int u = 0; u < loaded->table().num_units(); ++u) {
    const ParamUnit& unit = loaded->table().units[static_cast<size_t>(u)];
    for (size_t i = 0; i < unit.rows.size(); ++i) {
      const int64_t end = i + 1 < unit.rows.size() ? unit.rows[i + 1].offset : unit.num_elements;
      for (int64_t e = unit.rows[i].offset + unit.rows[i].num_elements; e < end; ++e, ++num_gaps)
        ASSERT_EQ(loaded->State(u).master.data<float>()[e], 0);
    }
  }
  EXPECT_GT(num_gaps, 0);
}

TEST_F(CheckpointTest, ADirectoryThatHuggingFaceReads) {
  const std::string model = directory_ / "model";
  WriteText(model + "/tokenizer.json", "{\"a\": 1}");
  WriteText(model + "/tokenizer_config.json", "{}");
  WriteText(model + "/model.safetensors", "not to be copied");
  WriteText(model + "/generation_config.json", "not of this one");
  const std::string other = directory_ / "other";
  WriteText(other + "/tokenizer.json", "not of this one");
  WriteText(other + "/generation_config.json", "{\"g\": 1}");
  options_.tokenizer_directory = model;
  options_.model_directory = other;
  Save(*RandomWeights(), 20);
  EXPECT_EQ(FilesIn(root_), (std::set<std::string>{"00000020", "latest"}));
  const std::string directory = root_ + "/00000020";
  EXPECT_EQ(FilesIn(directory),
            (std::set<std::string>{"checksums.json", "config.json", "generation_config.json",
                                   "model.safetensors", "optimizer.safetensors", "state.json",
                                   "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(ReadTextFile(directory + "/generation_config.json"), "{\"g\": 1}");
  EXPECT_EQ(ReadTextFile(directory + "/config.json"), options_.config_json);
  EXPECT_EQ(ReadTextFile(directory + "/tokenizer.json"), "{\"a\": 1}");
  const SafetensorsDirectory files(directory, "model");
  EXPECT_EQ(files.Shape("model.layers.1.self_attn.k_proj.weight"), (std::vector<int64_t>{12, 24}));
  EXPECT_EQ(files.Names().size(), 21u);  // 2 · 9 + embedding, norm, head
  const SafetensorsDirectory optimizer(directory, "optimizer");
  EXPECT_EQ(optimizer.Names().size(), 63u);
  for (const char* part : {"master", "exp_avg", "exp_avg_sq"})
    EXPECT_EQ(optimizer.Shape(fmt::format("model.norm.weight.{}", part)), std::vector<int64_t>{24});
}

TEST_F(CheckpointTest, LatestIsARelativeLinkToTheNewest) {
  EXPECT_EQ(LatestCheckpoint(root_), "");
  const auto weights = RandomWeights();
  for (const int64_t step : {5, 10, 123456789}) {
    Save(*weights, step);
    const std::string name = fmt::format("{:08}", step);
    EXPECT_EQ(fs::read_symlink(root_ + "/latest"), name);
    EXPECT_EQ(LatestCheckpoint(root_), root_ + "/" + name);
  }
  fs::remove_all(root_ + "/123456789");
  ExpectError({"latest", "123456789"}, [&] { LatestCheckpoint(root_); });
}

TEST_F(CheckpointTest, SgdKeepsNoMoments) {
  const auto saved = RandomWeights(Moments::kNone);
  Save(*saved, 7);
  EXPECT_TRUE(LoadBits(root_ + "/00000007", Moments::kNone) == Bits(*saved));
  ExpectError({"00000007/state.json", "\"sgd\"", "\"adamw\"", "opt_type"},
              [&] { LoadBits(root_ + "/00000007"); });
  Save(*RandomWeights(), 8);
  ExpectError({"00000008/state.json", "\"sgd\"", "\"adamw\""},
              [&] { LoadBits(root_ + "/00000008", Moments::kNone); });
}

TEST_F(CheckpointTest, TheSameStepIsReplaced) {
  const auto first = RandomWeights(Moments::kAdam, 1), second = RandomWeights(Moments::kAdam, 2);
  options_.max_shard_bytes = 9000;
  Save(*first, 5);
  options_.max_shard_bytes = 1 << 30;
  Save(*second, 5);
  EXPECT_EQ(FilesIn(root_), (std::set<std::string>{"00000005", "latest"}));
  EXPECT_EQ(FilesIn(root_ + "/00000005").size(), 5u);  // no shard is left
  EXPECT_TRUE(LoadBits(LatestCheckpoint(root_)) == Bits(*second));
}

TEST_F(CheckpointTest, WhatAKilledRunLeftGoesAtTheNextSave) {
  const auto weights = RandomWeights();
  WriteText(root_ + "/.tmp-00000005/model.safetensors", "half");
  WriteText(root_ + "/.tmp-old/state.json", "{}");
  fs::create_symlink("00000005", root_ + "/.tmp-latest");
  Save(*weights, 5);
  EXPECT_EQ(FilesIn(root_), (std::set<std::string>{"00000005", "latest"}));
  EXPECT_TRUE(LoadBits(LatestCheckpoint(root_)) == Bits(*weights));
}

mode_t ModeOf(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777;
}

TEST_F(CheckpointTest, WhatIsBeingWrittenIsTheOwnersAlone) {
  class Modes final : public FileCalls {
   public:
    explicit Modes(std::string folder) : folder_(std::move(folder)) {}
    ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const override {
      seen.insert(ModeOf(folder_));
      return FileCalls::Write(fd, data, bytes, offset);
    }
    mutable std::set<mode_t> seen;  // by one rank, in turn with its background

   private:
    const std::string folder_;
  };
  const mode_t before = umask(027);
  const Modes modes(root_ + "/.tmp-00000005");
  testing::SaveCheckpoint(root_, *RandomWeights(), StateAt(5), options_, {.file_calls = &modes});
  umask(before);
  EXPECT_EQ(modes.seen, std::set<mode_t>{0700});
  EXPECT_EQ(ModeOf(root_ + "/00000005"), 0750u);
  EXPECT_EQ(ModeOf(root_ + "/00000005/optimizer.safetensors"), 0640u);
}

// The checkpoint is there, whatever becomes of those that were to go.
TEST_F(CheckpointTest, OldOnesThatCannotBeRemovedAreNoFailedSave) {
  const auto weights = RandomWeights();
  Save(*weights, 5);
  options_.max_num_to_keep = 1;
  const testing::FailingDisk disk;
  disk.good_renames = 2;  // the checkpoint's and the link's
  RunThreadRanks(1, [&](Comm& world) {
    const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
    Snapshot snapshot(*weights, *backend);
    CheckpointSaver saver(root_, *weights, snapshot, world, options_, {.file_calls = &disk});
    saver.Start(StateAt(6));
    const CheckpointSaver::Ended ended = *saver.Wait();
    EXPECT_TRUE(ended.is_saved);
    EXPECT_NE(ended.error.find("rank 0: cannot remove"), std::string::npos) << ended.error;
    saver.Start(StateAt(7));
    EXPECT_FALSE(saver.Wait()->is_saved);
  });
  EXPECT_EQ(FilesIn(root_), (std::set<std::string>{"00000005", "00000006", "latest"}));
  EXPECT_EQ(fs::read_symlink(root_ + "/latest"), "00000006");
}

// Runs `act` in a child process without renameat2, as on a file system that can't swap. True if it returned.
template <class Act>
bool WithoutSwapping(Act act) {
  const pid_t child = fork();
  if (child == 0) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {4, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      _exit(2);
    try {
      act();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(CheckpointTest, TheSameStepIsReplacedWhereDirectoriesCannotBeSwapped) {
  const auto first = RandomWeights(Moments::kAdam, 1), second = RandomWeights(Moments::kAdam, 2);
  Save(*first, 4);
  Save(*first, 5);
  ASSERT_TRUE(WithoutSwapping([&] { Save(*second, 5); }));
  EXPECT_EQ(FilesIn(root_), (std::set<std::string>{"00000004", "00000005", "latest"}));
  EXPECT_TRUE(LoadBits(LatestCheckpoint(root_)) == Bits(*second));
  // A step that `latest` doesn't name.
  ASSERT_TRUE(WithoutSwapping([&] { Save(*second, 4); }));
  EXPECT_TRUE(LoadBits(root_ + "/00000004") == Bits(*second));
  EXPECT_EQ(fs::read_symlink(root_ + "/latest"), "00000004");
}

// A write that fails at each of several sizes, new step or old: the checkpoints before are as they were.
TEST_F(CheckpointTest, AFileThatMayNotGrowLeavesNothing) {
  const auto first = RandomWeights(Moments::kAdam, 1), second = RandomWeights(Moments::kAdam, 2);
  Save(*first, 5);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const int64_t step : {5, 6}) {
    for (const rlim_t limit : {0, 10, 1000, 20000, 60000}) {
      const rlimit small = {limit, before.rlim_max};
      setrlimit(RLIMIT_FSIZE, &small);
      ExpectError(
          {root_, "File too large"}, [&] { Save(*second, step); }, ExitCode::kResource);
      setrlimit(RLIMIT_FSIZE, &before);
      EXPECT_EQ(FilesIn(root_), (std::set<std::string>{"00000005", "latest"}));
      EXPECT_TRUE(LoadBits(LatestCheckpoint(root_)) == Bits(*first));
    }
  }
  std::signal(SIGXFSZ, old_handler);
}

TEST_F(CheckpointTest, AFullDiskLeavesNothing) {
  // A namespace of its own, so that the mount ends with this process in any case.
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    GTEST_SKIP() << "a small file system can be mounted by root only; AFileThatMayNotGrowLeavesNothing "
                    "covers the rest";
  const std::string small = directory_ / "small";
  fs::create_directory(small);
  ASSERT_EQ(mount("longspan-test", small.c_str(), "tmpfs", 0, "size=512k"), 0) << std::strerror(errno);
  root_ = small + "/checkpoints";
  const auto first = RandomWeights(Moments::kAdam, 1), second = RandomWeights(Moments::kAdam, 2);
  Save(*first, 5);
  const size_t num_before = FilesIn(small).size();
  // Ever less room, until nothing fits.
  for (int i = 0; i < 6; ++i) {
    const auto space = fs::space(small);
    WriteText(small + "/ballast" + std::to_string(i), std::string(space.available / 3, 'x'));
    bool saved = false;
    try {
      Save(*second, 6);
      saved = true;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kResource);
      EXPECT_NE(std::string_view(e.what()).find("No space left on device"), std::string_view::npos)
          << e.what();
    }
    if (saved) {
      EXPECT_TRUE(LoadBits(LatestCheckpoint(root_)) == Bits(*second));
      fs::remove_all(root_ + "/00000006");
      Save(*first, 5);
    }
    EXPECT_EQ(FilesIn(root_), (std::set<std::string>{"00000005", "latest"}));
    EXPECT_TRUE(LoadBits(LatestCheckpoint(root_)) == Bits(*first));
  }
  EXPECT_EQ(FilesIn(small).size(), num_before + 6);
  umount(small.c_str());
}

// Room, writes, syncs and renames that fail at any call, the early ones each: of a new step or an old one.
TEST_F(CheckpointTest, ADiskThatFailsAtAnyCallLeavesNothing) {
  const auto first = RandomWeights(Moments::kAdam, 1), second = RandomWeights(Moments::kAdam, 2);
  Save(*first, 5);
  using Calls = std::atomic<int64_t> testing::FailingDisk::*;
  for (const Calls calls : {&testing::FailingDisk::good_reserves, &testing::FailingDisk::good_writes,
                            &testing::FailingDisk::good_syncs, &testing::FailingDisk::good_renames}) {
    for (const int64_t step : {5, 6}) {
      int num_failures = 0;
      int64_t good = 0;
      for (bool failed = true; failed; good += 1 + good / 8) {
        SCOPED_TRACE(fmt::format("step {}, {} good calls", step, good));
        testing::FailingDisk disk;
        disk.*calls = good;
        try {
          testing::SaveCheckpoint(root_, *second, StateAt(step), options_, {.file_calls = &disk});
          failed = false;
        } catch (const Error& error) {
          ++num_failures;
          EXPECT_EQ(error.code(), ExitCode::kResource);
          EXPECT_NE(std::string_view(error.what()).find(root_), std::string_view::npos) << error.what();
        }
        // A new one is there if it was whole: what failed came after.
        std::set<std::string> names = FilesIn(root_);
        if (names.erase("00000006") > 0) testing::VerifyCheckpoint(root_ + "/00000006");
        EXPECT_EQ(names, (std::set<std::string>{"00000005", "latest"}));
        testing::VerifyCheckpoint(root_ + "/00000005");
        testing::VerifyCheckpoint(LatestCheckpoint(root_));
        if (!failed) {
          EXPECT_EQ(fs::read_symlink(root_ + "/latest"), CheckpointName(step));
        }
        fs::remove_all(root_ + "/00000006");
        Save(*first, 5);
      }
      EXPECT_GE(num_failures, 2);
    }
  }
}

// The one before is complete and `latest` again, and nothing of what was not finished is there.
TEST_F(CheckpointTest, ASaveThatIsLeftLeavesNothing) {
  const auto weights = RandomWeights();
  Save(*weights, 5);
  testing::FailingDisk disk;
  disk.good_syncs = 3;
  ExpectError({"ended here"}, [&] {
    RunThreadRanks(1, [&](Comm& world) {
      const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
      Snapshot snapshot(*weights, *backend);
      CheckpointSaver saver(root_, *weights, snapshot, world, options_, {.file_calls = &disk});
      const AbortOnUnwind guard(world);
      saver.Start(StateAt(6));
      throw Error("ended here");
    });
  });
  EXPECT_EQ(FilesIn(root_), (std::set<std::string>{"00000005", "latest"}));
  testing::VerifyCheckpoint(LatestCheckpoint(root_));
}

TEST_F(CheckpointTest, OldOnesGoOnceANewOneIsComplete) {
  const auto weights = RandomWeights();
  options_.max_num_to_keep = 2;
  for (const int64_t step : {1, 2, 3}) Save(*weights, step);
  EXPECT_EQ(FilesIn(root_), (std::set<std::string>{"00000002", "00000003", "latest"}));
  testing::FailingDisk disk;
  disk.good_syncs = 5;
  EXPECT_THROW(testing::SaveCheckpoint(root_, *weights, StateAt(4), options_, {.file_calls = &disk}), Error);
  EXPECT_EQ(FilesIn(root_), (std::set<std::string>{"00000002", "00000003", "latest"}));
}

// A byte of any file that is another, wherever it is; a file that is shorter or gone.
TEST_F(CheckpointTest, AnyDamageIsFound) {
  options_.max_shard_bytes = 20000;
  options_.tokenizer_directory = directory_ / "tokenizer";
  WriteText(options_.tokenizer_directory + "/tokenizer.json", "{}");
  Save(*RandomWeights(), 5);
  const std::string directory = root_ + "/00000005";
  const auto expect = [&](const std::string& name, std::string_view why) {
    for (const int ranks : {1, 3}) {
      try {
        testing::VerifyCheckpoint(directory, ranks);
        ADD_FAILURE() << name << ": nothing was found";
      } catch (const DamagedCheckpoint& error) {
        for (const std::string_view part : {std::string_view(name), why})
          EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
      }
    }
  };
  testing::VerifyCheckpoint(directory, 1);
  testing::VerifyCheckpoint(directory, 5);
  const std::set<std::string> names = FilesIn(directory);
  EXPECT_GE(names.size(), 10u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string path = directory + "/" + name, text = ReadTextFile(path);
    for (const size_t place : {size_t{0}, text.size() / 2, text.size() - 1}) {
      std::string bad = text;
      bad[place] = static_cast<char>(bad[place] ^ 4);
      WriteText(path, bad);
      expect(name == "checksums.json" ? "" : name, "");
    }
    WriteText(path, text.substr(0, text.size() - 1) + (text.ends_with("X") ? "Y" : "X"));
    expect(name, name.ends_with(".safetensors") ? "CRC-32" : "");
    WriteText(path, text + "x");
    expect(name, name == "checksums.json" ? "" : "bytes, and checksums.json says");
    WriteText(path, text.substr(0, text.size() - 1));
    if (name != "checksums.json") expect(name, "bytes, and checksums.json says");  // without its last newline
    fs::remove(path);
    if (name != "checksums.json") expect(name, "No such file");
    WriteText(path, text);
  }
  testing::VerifyCheckpoint(directory, 2);
  fs::remove_all(directory);
  expect(directory, "is no folder");
}

// One of before there were checksums: what can be known without them is.
TEST_F(CheckpointTest, WithoutChecksumsFilesAreLookedAt) {
  const auto weights = RandomWeights();
  Save(*weights, 5);
  const std::string directory = root_ + "/00000005";
  fs::remove(directory + "/checksums.json");
  testing::VerifyCheckpoint(directory, 2);
  EXPECT_TRUE(LoadBits(directory) == Bits(*weights));
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json", "config.json"}) {
    const std::string path = directory + "/" + name, text = ReadTextFile(path);
    fs::remove(path);
    EXPECT_THROW(testing::VerifyCheckpoint(directory, 2), DamagedCheckpoint);
    WriteText(path, text.substr(0, text.size() - 2));
    if (std::string_view(name) != "config.json") {
      EXPECT_THROW(testing::VerifyCheckpoint(directory, 2), DamagedCheckpoint) << name;
    }
    WriteText(path, text);
  }
  testing::VerifyCheckpoint(directory);
}

// Also where a checkpoint is only a model directory.
TEST_F(CheckpointTest, DamagedWeightsAreNoModel) {
  Save(*RandomWeights(), 5);
  const std::string directory = root_ + "/00000005", path = directory + "/model.safetensors";
  const auto weights = NewWeights();
  std::string text = ReadTextFile(path);
  text.back() = static_cast<char>(text.back() ^ 1);
  WriteText(path, text);
  ExpectError({path, "CRC-32"}, [&] { LoadModelWeights(directory, *weights); });
  fs::remove(directory + "/checksums.json");
  LoadModelWeights(directory, *weights);
}

TEST_F(CheckpointTest, APlaceThatCannotBeMade) {
  root_ = WriteText(directory_ / "file", "x") + "/checkpoints";
  ExpectError(
      {root_}, [&] { Save(*RandomWeights(), 1); }, ExitCode::kResource);
}

TEST_F(CheckpointTest, DamagedCheckpointsAreRefusedAndChangeNothing) {
  options_.max_shard_bytes = 20000;
  Save(*RandomWeights(), 5);
  const std::string directory = root_ + "/00000005";
  const auto weights = RandomWeights(Moments::kAdam, 9);
  const std::vector<uint32_t> bits = Bits(*weights);
  int num_files = 0;
  for (const std::string& name : FilesIn(directory)) {
    if (name == "config.json") continue;
    ++num_files;
    SCOPED_TRACE(name);
    const std::string path = directory + "/" + name;
    const std::string text = ReadTextFile(path);
    for (const size_t size : {size_t{0}, text.size() / 2, text.size() - 2}) {
      WriteText(path, text.substr(0, size));
      ExpectError({name}, [&] { LoadCheckpoint(directory, *weights); });
    }
    fs::remove(path);
    if (name != "checksums.json") ExpectError({name}, [&] { LoadCheckpoint(directory, *weights); });
    WriteText(path, text);
  }
  EXPECT_GE(num_files, 7);  // two shards and an index at least of both, and state.json
  EXPECT_TRUE(Bits(*weights) == bits);
  ExpectError({"nowhere/state.json"}, [&] { LoadCheckpoint(directory_ / "nowhere", *weights); });
  LoadCheckpoint(directory, *weights);
  EXPECT_TRUE(Bits(*weights) == Bits(*RandomWeights()));
}

TEST_F(CheckpointTest, BrokenStateIsRefused) {
  Save(*RandomWeights(), 5);
  const std::string directory = root_ + "/00000005", path = directory + "/state.json";
  fs::remove(directory + "/checksums.json");
  const auto good = nlohmann::json::parse(ReadTextFile(path));
  const auto expect = [&](const nlohmann::json& state, std::initializer_list<std::string_view> parts) {
    SCOPED_TRACE(state.dump());
    WriteText(path, state.dump());
    ExpectError({path}, [&] { LoadBits(directory); });
    ExpectError(parts, [&] { LoadBits(directory); });
  };
  for (const char* key : {"version", "step", "optimizer_step", "sources"}) {
    nlohmann::json state = good;
    state.erase(key);
    expect(state, {key, "missing"});
    for (const nlohmann::json& wrong :
         {nlohmann::json(-1), nlohmann::json(1.5), nlohmann::json("1"), nlohmann::json()}) {
      state[key] = wrong;
      expect(state, {key});
    }
  }
  for (const char* key : {"sequences", "epoch", "document", "token", "window"}) {
    nlohmann::json state = good;
    state["sources"][1].erase(key);
    expect(state, {key, "missing"});
    state["sources"][1][key] = 18446744073709551615u;
    expect(state, {key});
  }
  for (const char* key : {"max_target_length", "sequences"}) {
    nlohmann::json state = good;
    state["sources"][1]["window"][0].erase(key);
    expect(state, {key, "missing"});
    state["sources"][1]["window"][0] = 3;
    expect(state, {"window", "3"});
  }
  for (const char* key : {"path", "weight"}) {
    nlohmann::json state = good;
    state["sources"][0].erase(key);
    expect(state, {"path and weight"});
    state["sources"][0][key] = nullptr;
    expect(state, {"path and weight"});
  }
  for (const char* key : {"step", "optimizer_step"}) {
    nlohmann::json state = good;
    state[key] = std::numeric_limits<int64_t>::max();
    expect(state, {key, "9223372036854775807"});
  }
  nlohmann::json state = good;
  state["version"] = 3;
  expect(state, {"version 3", "versions 1 to 2"});
  state = good;
  state.erase("optimizer");
  expect(state, {"opt_type null"});
  expect(nlohmann::json::array(), {"object"});
  WriteText(path, "{\"step\": 1, \"step\": 1}");
  ExpectError({path, "'step'", "twice"}, [&] { LoadBits(directory); });
}

// What was saved before there were mixtures.
TEST_F(CheckpointTest, StateOfVersion1IsRead) {
  const auto weights = RandomWeights();
  Save(*weights, 5);
  fs::remove(root_ + "/00000005/checksums.json");  // nor were there these
  WriteText(root_ + "/00000005/state.json",
            R"({"version": 1, "step": 5, "optimizer": "adamw", "optimizer_step": 7,
                "reader": {"epoch": 2, "document": 31, "token": 44}})");
  const CheckpointState state = LoadCheckpoint(root_ + "/00000005", *weights);
  EXPECT_EQ(state.step, 5);
  ASSERT_EQ(state.sources.size(), 1u);
  EXPECT_EQ(state.sources[0].reader, (ReaderPosition{2, 31, 44, {}}));
}

TEST_F(CheckpointTest, AnotherModelIsRefused) {
  Save(*RandomWeights(), 5);
  const std::string directory = root_ + "/00000005";
  ModelConfig config = testing::TiedTinyConfig(false);
  config.intermediate_size = 48;
  ShardedWeights wider(MakeParamTable(config), DType::kFloat32, Moments::kAdam);
  ExpectError({"model.safetensors", "mlp.gate_proj.weight", "(40, 24)", "(48, 24) is wanted"},
              [&] { LoadCheckpoint(directory, wider); });
  ExpectError({"model.safetensors", "mlp.gate_proj.weight", "(40, 24)", "(48, 24) is wanted"},
              [&] { LoadModelWeights(directory, wider); });
  config = testing::TiedTinyConfig(false);
  config.SetNumLayers(3);
  ShardedWeights deeper(MakeParamTable(config), DType::kFloat32, Moments::kAdam);
  ExpectError({directory, "no tensor 'model.layers.2."}, [&] { LoadCheckpoint(directory, deeper); });
  ExpectError({directory, "no tensor 'model.layers.2."}, [&] { LoadModelWeights(directory, deeper); });
  config.SetNumLayers(1);
  ShardedWeights shallower(MakeParamTable(config), DType::kFloat32, Moments::kAdam);
  ExpectError({directory, "'model.layers.1.", "none of this model's"},
              [&] { LoadCheckpoint(directory, shallower); });
  ExpectError({directory, "'model.layers.1.", "none of this model's"},
              [&] { LoadModelWeights(directory, shallower); });
}

// Directories as other programs write them.
class ModelWeightsTest : public ::testing::Test {
 protected:
  ModelWeightsTest() {
    source_->Initialize(0.3, 1);
    for (int u = 0; u < source_->table().num_units(); ++u) {
      const ParamUnit& unit = source_->table().units[static_cast<size_t>(u)];
      const std::vector<Tensor> views = UnitViews(unit, source_->State(u).master);
      for (size_t i = 0; i < views.size(); ++i)
        tensors_.push_back({unit.rows[i].name, views[i], unit.rows[i].shape});
    }
  }
  void Write() {
    fs::remove(directory_ / "model.safetensors");
    WriteSafetensors(directory_.path(), "model", tensors_, DType::kFloat32, 1 << 30);
  }
  // Loads into a model, tied or not, and gives back the masters of embedding and last unit.
  std::pair<std::vector<float>, std::vector<float>> Load(bool tied) const {
    const auto weights = NewWeights(Moments::kNone, tied);
    LoadModelWeights(directory_.path(), *weights);
    const auto& units = weights->table().units;
    return {Elements<float>(units.front(), weights->State(0).master),
            Elements<float>(units.back(), weights->State(weights->table().num_units() - 1).master)};
  }
  SafetensorsTensor& Find(std::string_view name) {
    return *std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
  }

  TemporaryDirectory directory_;
  std::unique_ptr<ShardedWeights> source_ = NewWeights(Moments::kNone, true);  // tied
  std::vector<SafetensorsTensor> tensors_;
};

TEST_F(ModelWeightsTest, TiedWeights) {
  const std::vector<float> embedding = Elements<float>(source_->table().units[0], source_->State(0).master);
  Write();
  EXPECT_EQ(Load(true).first, embedding);
  ExpectError({directory_.path(), "no tensor 'lm_head.weight'"}, [&] { Load(false); });

  Find("model.embed_tokens.weight").name = "lm_head.weight";  // only the head is stored
  Write();
  EXPECT_EQ(Load(true).first, embedding);
  ExpectError({directory_.path(), "no tensor 'model.embed_tokens.weight'"}, [&] { Load(false); });

  std::vector<float> copy = embedding;
  tensors_.push_back({"model.embed_tokens.weight", Tensor(copy.data(), DType::kFloat32, {37, 24}), {37, 24}});
  Write();
  EXPECT_EQ(Load(true).first, embedding);
  EXPECT_EQ(Load(false).first, embedding);
  copy.back() += 1;
  Write();
  ExpectError({directory_.path(), "tie_word_embeddings", "differ"}, [&] { Load(true); });
  EXPECT_EQ(Load(false).first, copy);
}

TEST_F(ModelWeightsTest, AnAliasStandsForBoth) {
  Find("model.embed_tokens.weight").name = "lm_head.weight";
  Write();
  std::string file = ReadTextFile(directory_ / "model.safetensors");
  const std::string format = "\"format\":\"pt\"", alias = "\"model.embed_tokens.weight\":\"lm_head.weight\"";
  file.replace(file.find(format), format.size(), alias);
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), 8);
  header_size += alias.size() - format.size();
  std::memcpy(file.data(), &header_size, 8);
  WriteText(directory_ / "model.safetensors", file);
  const std::vector<float> embedding = Elements<float>(source_->table().units[0], source_->State(0).master);
  EXPECT_EQ(Load(true).first, embedding);
  EXPECT_EQ(Load(false).first, embedding);
}

TEST_F(ModelWeightsTest, OtherTensors) {
  std::vector<float> values(3, 1);
  const Tensor three(values.data(), DType::kFloat32, {3});
  tensors_.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", three, {3}});
  Write();
  Load(true);
  tensors_.push_back({"model.layers.0.self_attn.q_proj.bias", three, {3}});
  Write();
  ExpectError({directory_.path(), "'model.layers.0.self_attn.q_proj.bias'", "none of this model's"},
              [&] { Load(true); });
}

TEST_F(ModelWeightsTest, ComputeWeightsAreRounded) {
  Write();
  const auto weights = NewWeights(Moments::kNone, true);
  LoadModelWeights(directory_.path(), *weights);
  const float master = weights->State(1).master.data<float>()[100];
  EXPECT_EQ(weights->State(1).compute.data<BFloat16>()[100].bits, BFloat16(master).bits);
}

}  // namespace
}  // namespace longspan
