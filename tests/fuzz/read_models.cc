#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cli/keys.h"
#include "core/check.h"
#include "data/mixture.h"
#include "fuzz/memory_file.h"
#include "fuzz/readers.h"
#include "model/config.h"
#include "model/context_extension.h"
#include "model/generation_config.h"
#include "support/fake_corpus.h"
#include "support/safetensors.h"
#include "train/checkpoint_state.h"
#include "train/checksums.h"
#include "train/safetensors.h"

namespace longspan::fuzz {
namespace {

constexpr int64_t kMaxElements = 1 << 16;  // of a tensor that is read

// Every tensor of a reader or directory can be read as it is stored, and those of floats as floats.
template <class Files>
void ReadAll(const Files& files, const std::string& name, const SafetensorsReader::Entry& entry) {
  const int64_t n = std::min(kMaxElements, entry.num_elements());
  CHECK(n >= 0 && entry.begin >= 0);
  std::vector<std::byte> bytes(static_cast<size_t>(n * entry.type->bytes));
  files.ReadStored(name, entry.num_elements() - n, bytes);
  if (entry.type->kind != ElementKind::kFloat) return;
  std::vector<float> values(static_cast<size_t>(n));
  files.ReadFloat32(name, 0, values);
}

}  // namespace

void ReadSafetensors(std::string_view input) {
  const SafetensorsReader reader(FileOf(input));
  int64_t data_bytes = 0;
  for (const auto& [name, entry] : reader.entries()) {
    ReadAll(reader, name, entry);
    data_bytes += entry.end - entry.begin;
  }
  CHECK(data_bytes <= static_cast<int64_t>(input.size()));
}

namespace {

// The index of two shards, with tensors a and b, and c.
class Shards {
 public:
  Shards() : directory_({"model.safetensors.index.json"}) {
    float value = 1;
    const Tensor values(&value, DType::kFloat32, {1});
    WriteSafetensors(directory_.path(), "first", {{"a", values, {1}}, {"b", values, {1}}}, DType::kFloat32,
                     99);
    WriteSafetensors(directory_.path(), "second", {{"c", values, {1}}}, DType::kBFloat16, 99);
  }
  void Open(std::string_view index) const {
    const SafetensorsDirectory files(directory_.With(index), "model");
    CHECK(files.Names().size() <= 3);
    for (const std::string& name : files.Names()) ReadAll(files, name, files.At(name));
  }

 private:
  const MemoryFolder directory_;
};

}  // namespace

void ReadSafetensorsIndex(std::string_view input) {
  static const Shards shards;
  shards.Open(input);
}

void ReadConfig(std::string_view input) {
  const ModelConfig config = ParseModelConfig(input, "config.json");
  const std::string kept = WriteModelConfig(config, input, DType::kBFloat16);
  CHECK(ParseModelConfig(kept, "kept") == config);
  CHECK(ParseModelConfig(WriteModelConfig(config, "", DType::kFloat32), "written") == config);
  const std::string extended = ExtendPositions(input, "config.json", int64_t{1} << 24);
  CHECK(ParseModelConfig(extended, "extended").max_position_embeddings >= int64_t{1} << 24);
}

namespace {

// A config of 6 layers, with what a model type's rotary embedding needs besides.
std::string ConfigWith(std::string_view model_type, std::string_view more) {
  return fmt::format(
      R"({{"model_type": "{}", "hidden_size": 192, "intermediate_size": 64, "num_hidden_layers": 6,
           "num_attention_heads": 32, "vocab_size": 50, "head_dim": 6, "max_position_embeddings": 1000{}}})",
      model_type, more);
}

}  // namespace

void ReadRope(std::string_view input) {
  double rope_theta = 0;
  ValueMap rope_scaling;
  KeyList keys;
  keys.Add("rope_theta", &rope_theta, "As that of longspan train.", AtLeast(0));
  keys.Add("rope_scaling", &rope_scaling, "The same.");
  LoadKeysFromText("fuzz", keys, std::string(input), "recipe");
  static const std::vector<std::string> configs = {
      ConfigWith("llama", R"(, "rope_theta": 10000.0, "torch_dtype": "float32")"),
      ConfigWith("qwen3", R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 7000.0})"),
      ConfigWith("gemma3_text", "")};
  int num_read = 0;
  std::string refused;
  for (const std::string& config : configs) {
    try {
      const std::string changed = OverrideRope(config, "config.json", rope_theta, rope_scaling);
      const ModelConfig model = ParseModelConfig(ExtendPositions(changed, "changed", 1 << 20), "extended");
      CHECK(model.max_position_embeddings == 1 << 20);
      ++num_read;
    } catch (const Error& error) {
      refused = error.what();
    }
  }
  Require(num_read > 0, "{}", refused);
}

void ReadGenerationConfig(std::string_view input) {
  constexpr int64_t kVocabulary = 1000;
  static const MemoryFolder folder({"generation_config.json"});
  for (const int32_t id : EosTokens(folder.With(input), kVocabulary)) CHECK(id >= 0 && id < kVocabulary);
}

void ReadState(std::string_view input) {
  const CheckpointState state = ReadCheckpointState(FileOf(input), /*wanted_optimizer=*/"");
  const std::string written = WriteCheckpointState(state, "adamw");
  CHECK(WriteCheckpointState(ReadCheckpointState(FileOf(written), "adamw"), "adamw") == written);

  // Wherever it says that the run stood: some sequences more, or that there is no such place.
  constexpr int64_t kLength = 10;
  static const std::vector<DataSource> sources = [] {
    std::mt19937 random(7);
    std::vector<DataSource> made;
    made.push_back(
        {"a", 0.7, std::make_unique<testing::FakeCorpus>(testing::CountingCorpus({5, 9, 2, 31, 7}, random))});
    made.push_back(
        {"b", 0.3, std::make_unique<testing::FakeCorpus>(testing::CountingCorpus({3, 14}, random))});
    return made;
  }();
  for (const PackingRow& row : PackingTable()) {
    MixtureReader reader(sources, kLength, 3, true, row.packing);
    reader.Seek(state.sources);
    for (int n = 0; n < 8; ++n) CHECK(reader.Next().num_tokens > 0);
  }
}

void ReadChecksums(std::string_view input) {
  const Checksums checksums = ParseChecksums(input, "checksums.json");
  CHECK(ParseChecksums(WriteChecksums(checksums), "written") == checksums);
  for (const auto& [name, sum] : checksums) CHECK(name.find('/') == name.npos && name != "..");
}

}  // namespace longspan::fuzz
