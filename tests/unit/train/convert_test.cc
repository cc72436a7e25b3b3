#include "train/convert.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <set>

#include "support/expect_error.h"
#include "support/runs.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::LatestWeights;
using testing::ReadWeights;
using testing::TinyConfig;
using testing::WriteText;

std::set<std::string> FilesIn(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

// Equal bit for bit, also where a NaN or a zero's sign is.
void ExpectSameTensors(const std::string& a, const std::string& b, const std::string& stem = "model") {
  const SafetensorsDirectory files_a(a, stem), files_b(b, stem);
  const std::vector<std::string> names = files_a.Names();
  ASSERT_EQ(names, files_b.Names());
  for (const std::string& name : names) {
    const auto &entry_a = files_a.At(name), &entry_b = files_b.At(name);
    ASSERT_EQ(entry_a.type, entry_b.type) << name;
    ASSERT_EQ(entry_a.shape, entry_b.shape) << name;
    std::vector<std::byte> bytes_a(static_cast<size_t>(entry_a.end - entry_a.begin)), bytes_b(bytes_a.size());
    files_a.ReadStored(name, 0, bytes_a);
    files_b.ReadStored(name, 0, bytes_b);
    EXPECT_TRUE(bytes_a == bytes_b) << name;
  }
}

class ConvertTest : public ::testing::Test {
 protected:
  ConvertTest() { testing::WriteModel(model_, TinyConfig(), 3); }

  ConvertReport To(const std::string& output, ConvertConfig config = {}) const {
    config.output = output;
    if (config.model_path.empty()) config.model_path = model_;
    return Convert(config);
  }
  // A run of some steps on this model, or from a checkpoint; its directory.
  std::string Train(const std::string& name, int64_t steps, const std::string& save_dtype,
                    const std::string& resume = "none") const {
    const std::string data = directory_ / "documents.jsonl";
    if (!fs::exists(data)) testing::WriteDocuments(data, {70, 33, 120, 5, 64}, TinyConfig().vocab_size);
    TrainConfig config = testing::PlainConfig(model_, data, directory_ / "runs");
    config.run_name = name;
    config.steps = steps;
    config.learning_rate = 1e-2;
    config.learning_rate_schedule_steps = 6;
    config.max_target_length = 96;
    config.save_dtype = save_dtype;
    config.resume = resume;
    return testing::TrainQuietly(config);
  }

  testing::TemporaryDirectory directory_;
  const std::string model_ = directory_ / "model", output_ = directory_ / "output";
};

TEST_F(ConvertTest, AnotherTypeAndOtherShards) {
  WriteText(model_ + "/tokenizer.json", "{\"t\": 1}");
  WriteText(model_ + "/generation_config.json", "{\"g\": 1}");
  WriteText(model_ + "/LICENSE", "free");
  WriteText(model_ + "/pytorch_model.bin", "weights");
  WriteText(model_ + "/.gitattributes", "hidden");
  WriteText(model_ + "/original/params.json", "folder");
  const ConvertReport report = To(output_, {.dtype = "bfloat16", .max_shard_bytes = 8000});
  EXPECT_EQ(report.model_directory, model_);
  EXPECT_EQ(report.num_tensors, 21);
  EXPECT_EQ(report.num_elements, TinyConfig().num_parameters());
  EXPECT_EQ(report.model_bytes, 2 * report.num_elements);
  const std::set<std::string> files = FilesIn(output_);
  for (const char* name : {"config.json", "tokenizer.json", "generation_config.json", "LICENSE",
                           "model.safetensors.index.json", "model-00001-of-00004.safetensors"})
    EXPECT_TRUE(files.contains(name)) << name;
  EXPECT_EQ(files.size(), 9u);
  EXPECT_EQ(ReadTextFile(output_ + "/LICENSE"), "free");
  EXPECT_EQ(ReadTextFile(output_ + "/config.json"),
            WriteModelConfig(TinyConfig(), ReadTextFile(model_ + "/config.json"), DType::kBFloat16));

  const auto before = ReadWeights(model_), after = ReadWeights(output_);
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, values] : before)
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(after.at(name)[i], static_cast<float>(BFloat16(values[i]))) << name;

  // And back: what bfloat16 holds, float32 holds.
  To(directory_ / "back", {.model_path = output_, .dtype = "float32"});
  EXPECT_TRUE(ReadWeights(directory_ / "back") == after);
  To(directory_ / "again", {.model_path = directory_ / "back", .dtype = "bfloat16", .max_shard_bytes = 8000});
  for (const std::string& name : files)
    EXPECT_EQ(ReadTextFile(output_ + "/" + name), ReadTextFile(directory_ / ("again/" + name))) << name;
}

TEST_F(ConvertTest, NothingChangesUnasked) {
  std::string config = ReadTextFile(model_ + "/config.json");
  config.insert(1, "\n\n \"unknown\" : [1,\t2],");
  WriteText(model_ + "/config.json", config);
  To(output_);
  EXPECT_EQ(ReadTextFile(output_ + "/config.json"), config);
  EXPECT_EQ(ReadTextFile(output_ + "/model.safetensors"), ReadTextFile(model_ + "/model.safetensors"));
  EXPECT_EQ(FilesIn(output_), (std::set<std::string>{"config.json", "model.safetensors"}));
}

// A model of which nothing is known, with every type, an alias and metadata.
TEST_F(ConvertTest, AnyModel) {
  const std::string model = directory_ / "any";
  WriteText(model + "/config.json", R"({"model_type": "unheard_of", "torch_dtype": "float16"})");
  const auto source = [](const char* name, const char* type, std::vector<int64_t> shape, uint8_t byte) {
    return SafetensorsSource{
        .name = name,
        .type = FindElementType(type),
        .shape = std::move(shape),
        .read = [byte](int64_t, std::span<std::byte> out) { std::ranges::fill(out, std::byte{byte}); }};
  };
  std::vector<SafetensorsSource> tensors = {source("z.half", "F16", {2, 1, 1, 3, 1, 2}, 0x3c),
                                            source("ids", "I64", {3}, 0x81),
                                            source("mask", "BOOL", {5}, 1),
                                            source("eight", "F8_E4M3", {7}, 0x38),
                                            source("nothing", "F64", {0, 3}, 0),
                                            source("scalar", "F64", {}, 0x40)};
  tensors[0].aliases = {"tied"};
  WriteSafetensors(model, "model", tensors, {{"format", "mlx"}, {"who", "me"}}, 30);

  ConvertConfig config = {.model_path = model, .dtype = "float32", .max_shard_bytes = 60};
  To(output_, config);
  const SafetensorsDirectory files(output_, "model");
  EXPECT_EQ(files.Names(), (std::vector<std::string>{"z.half", "ids", "mask", "eight", "nothing", "scalar"}));
  EXPECT_EQ(files.Aliases(), (SafetensorsDirectory::Texts{{"tied", "z.half"}}));
  EXPECT_EQ(files.Metadata(), (SafetensorsDirectory::Texts{{"format", "mlx"}, {"who", "me"}}));
  for (const char* name : {"z.half", "eight", "nothing", "scalar"})
    EXPECT_EQ(files.At(name).type->name, "F32");
  std::vector<float> half(12), eight(7), scalar(1);
  files.ReadFloat32("tied", 0, half);
  files.ReadFloat32("eight", 0, eight);
  files.ReadFloat32("scalar", 0, scalar);
  EXPECT_EQ(half, std::vector<float>(12, 1.05859375f));
  EXPECT_EQ(eight, std::vector<float>(7, 1));
  EXPECT_EQ(scalar[0], static_cast<float>(std::bit_cast<double>(uint64_t{0x4040404040404040})));
  EXPECT_EQ(files.At("ids").type->name, "I64");
  std::vector<std::byte> ids(24);
  files.ReadStored("ids", 0, ids);
  EXPECT_EQ(ids, std::vector<std::byte>(24, std::byte{0x81}));
  EXPECT_EQ(nlohmann::json::parse(ReadTextFile(output_ + "/config.json")),
            (nlohmann::json{{"model_type", "unheard_of"}, {"torch_dtype", "float32"}}));

  To(directory_ / "stored", {.model_path = model});
  ExpectSameTensors(directory_ / "stored", model);
  ExpectError({"any/config.json", "unheard_of"},
              [&] { To(directory_ / "no", {.model_path = model, .format = "checkpoint"}); });

  tensors.push_back(source("complex", "C64", {1}, 0));
  fs::remove_all(model);
  WriteText(model + "/config.json", "{}");
  WriteSafetensors(model, "model", tensors, {}, 1000);
  ExpectError({"'complex' is C64", "float32"}, [&] { To(directory_ / "no", config); });
  WriteText(model + "/config.json", R"({"quantization_config": {"quant_method": "fp8"}})");
  ExpectError({"any/config.json", "quantization_config"}, [&] { To(directory_ / "no", config); });
  To(directory_ / "quantised", {.model_path = model});  // its bytes may go into other shards
  ExpectSameTensors(directory_ / "quantised", model);
  EXPECT_FALSE(fs::exists(directory_ / "no"));
}

// A run that saves in bfloat16 loses nothing: its masters are what is converted.
TEST_F(ConvertTest, ACheckpointBecomesAModel) {
  const std::string run = Train("a", 3, "bfloat16"), exact = Train("b", 3, "float32");
  To(output_, {.model_path = run, .dtype = "float32"});
  EXPECT_EQ(FilesIn(output_), (std::set<std::string>{"config.json", "model.safetensors"}));
  ExpectSameTensors(output_, LatestCheckpoint(exact + "/checkpoints"));
  EXPECT_EQ(ReadTextFile(output_ + "/config.json"),
            ReadTextFile(LatestCheckpoint(exact + "/checkpoints") + "/config.json"));
  To(directory_ / "stored", {.model_path = run + "/checkpoints/latest"});
  ExpectSameTensors(directory_ / "stored", LatestCheckpoint(run + "/checkpoints"));
  To(directory_ / "rounded", {.model_path = exact + "/checkpoints/00000003", .dtype = "bfloat16"});
  ExpectSameTensors(directory_ / "rounded", LatestCheckpoint(run + "/checkpoints"));
  EXPECT_TRUE(ReadWeights(output_) == LatestWeights(exact));
}

TEST_F(ConvertTest, AModelBecomesACheckpointThatTrainsAsIt) {
  To(output_, {.max_shard_bytes = 20000, .format = "checkpoint"});
  ExpectSameTensors(output_, model_);
  const std::string from_model = Train("model", 3, "float32"),
                    resumed = Train("checkpoint", 3, "float32", output_);
  ExpectSameTensors(LatestCheckpoint(from_model + "/checkpoints"),
                    LatestCheckpoint(resumed + "/checkpoints"));
  ExpectSameTensors(LatestCheckpoint(from_model + "/checkpoints"), LatestCheckpoint(resumed + "/checkpoints"),
                    "optimizer");

  // Back to a model: the same file.
  To(directory_ / "back", {.model_path = output_});
  EXPECT_EQ(ReadTextFile(directory_ / "back/model.safetensors"), ReadTextFile(model_ + "/model.safetensors"));
}

TEST_F(ConvertTest, ACheckpointKeepsItsState) {
  const std::string run = Train("a", 6, "float32"), stopped = Train("b", 4, "float32");
  To(output_, {.model_path = stopped, .dtype = "bfloat16", .max_shard_bytes = 20000, .format = "checkpoint"});
  EXPECT_EQ(ReadTextFile(output_ + "/state.json"),
            ReadTextFile(LatestCheckpoint(stopped + "/checkpoints") + "/state.json"));
  const std::string resumed = Train("c", 6, "float32", output_);
  ExpectSameTensors(LatestCheckpoint(run + "/checkpoints"), LatestCheckpoint(resumed + "/checkpoints"));
}

TEST_F(ConvertTest, ATiedModelWhoseHeadIsStored) {
  const std::string tied = directory_ / "tied", renamed = directory_ / "renamed";
  testing::WriteModel(tied, testing::TiedTinyConfig(true), 5);
  std::vector<SafetensorsSource> tensors;
  const SafetensorsDirectory files(tied, "model");
  for (const std::string& name : files.Names())
    tensors.push_back({.name = name == "model.embed_tokens.weight" ? "lm_head.weight" : name,
                       .type = files.At(name).type,
                       .shape = files.Shape(name),
                       .read = [&files, name](int64_t first, std::span<std::byte> out) {
                         files.ReadStored(name, first, out);
                       }});
  WriteText(renamed + "/config.json", ReadTextFile(tied + "/config.json"));
  WriteSafetensors(renamed, "model", tensors, {}, 1 << 30);
  To(output_, {.model_path = renamed, .format = "checkpoint"});
  ExpectSameTensors(output_, tied);
}

TEST_F(ConvertTest, WhatCannotBeReadLeavesNothing) {
  To(output_, {.max_shard_bytes = 10000});
  ExpectError(
      {output_, "not empty"}, [&] { To(output_); }, ExitCode::kUsage);
  const std::string shard = output_ + "/model-00002-of-00007.safetensors";
  const std::string text = ReadTextFile(shard);
  WriteText(shard, text.substr(0, text.size() - 1));
  const auto convert = [&](std::string model) {
    return [this, model] { To(directory_ / "other", {.model_path = model}); };
  };
  ExpectError({shard, "truncated"}, convert(output_));
  fs::remove(shard);
  ExpectError({shard, "missing"}, convert(output_));
  ExpectError({"nowhere", "no directory"}, convert(directory_ / "nowhere"));
  fs::create_directory(directory_ / "empty");
  ExpectError({"empty", "config.json nor checkpoints"}, convert(directory_ / "empty"));
  WriteText(directory_ / "empty/config.json", "{}");
  ExpectError({"empty", "model.safetensors"}, convert(directory_ / "empty"));
  WriteText(directory_ / "empty/model.safetensors.index.json", R"({"weight_map": {}})");
  ExpectError({"empty/model.safetensors.index.json", "no tensors"}, convert(directory_ / "empty"));
  WriteText(directory_ / "empty/model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  ExpectError({"empty/model.safetensors", "no tensors"}, convert(directory_ / "empty"));
  EXPECT_EQ(FilesIn(directory_.path()), (std::set<std::string>{"empty", "model", "output"}));
}

TEST_F(ConvertTest, AFileThatMayNotGrowLeavesNothing) {
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t limit : {0, 100, 9000, 12000}) {
    const rlimit small = {limit, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    ExpectError(
        {"File too large"}, [&] { To(output_, {.max_shard_bytes = 14000}); }, ExitCode::kResource);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(FilesIn(directory_.path()), std::set<std::string>{"model"});
  }
  std::signal(SIGXFSZ, old_handler);
}

// A kill while the second shard is being written: nothing has the output's name, and the next try is not in
// the way of what is left.
TEST_F(ConvertTest, AKillLeavesNothingThatLooksComplete) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0}, small = {12000, 12000};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_FSIZE, &small);  // ends in SIGXFSZ
    To(output_, {.max_shard_bytes = 14000});
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGXFSZ);
  EXPECT_EQ(FilesIn(directory_.path()), (std::set<std::string>{".tmp-output", "model"}));
  EXPECT_TRUE(fs::exists(directory_ / ".tmp-output/model-00001-of-00005.safetensors"));
  To(output_);
  EXPECT_EQ(FilesIn(directory_.path()), (std::set<std::string>{"model", "output"}));
  ExpectSameTensors(output_, model_);
}

// In kilobytes, of a child process that does it.
template <class Act>
int64_t PeakMemory(Act act) {
  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    act();
    getrusage(RUSAGE_SELF, &after);
    const int64_t grown = after.ru_maxrss - before.ru_maxrss;
    _exit(write(pipe_ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
  }
  close(pipe_ends[1]);
  int64_t grown = -1;
  int status = -1;
  EXPECT_EQ(read(pipe_ends[0], &grown, sizeof grown), static_cast<ssize_t>(sizeof grown));
  close(pipe_ends[0]);
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return grown;
}

// Neither reading nor converting keeps the file in memory beside what is made of it.
TEST_F(ConvertTest, MemoryStaysSmall) {
  ModelConfig config = TinyConfig();
  config.vocab_size = 160000;  // 2 · 15 MB; of the limit, sanitizers take some
  const std::string model = directory_ / "large";
  testing::WriteModel(model, config, 1);
  const int64_t file_kb = static_cast<int64_t>(fs::file_size(model + "/model.safetensors")) / 1024;
  ASSERT_GT(file_kb, 30000);
  EXPECT_LT(PeakMemory([&] { To(output_, {.model_path = model, .dtype = "bfloat16"}); }), 16000);
  const auto load = [&] {
    const std::unique_ptr<ShardedWeights> weights = std::make_unique<ShardedWeights>(
        MakeParamTable(config), DType::kFloat32, ShardedWeights::Moments::kNone);
    LoadModelWeights(model, *weights);
  };
  EXPECT_LT(PeakMemory(load), file_kb + 16000);  // gradients aren't touched
}

}  // namespace
}  // namespace longspan
