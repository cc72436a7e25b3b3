#include "train/checkpoint.h"

#include <algorithm>
#include <set>

#include "core/check.h"
#include "core/file.h"
#include "data/json.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_parts.h"
#include "train/checkpoint_verify.h"

namespace longspan {
namespace {

using nlohmann::json;

constexpr const char *kEmbeddingName = "model.embed_tokens.weight", *kHeadName = "lm_head.weight";
constexpr const char* kNoWeight = "rotary_emb.inv_freq";  // is computed; some old files hold it

// Throws Error unless the files hold these tensors with their shapes, and no other.
void CheckTensors(const SafetensorsDirectory& files, const ShardedWeights& weights,
                  const std::vector<SavedPart>& parts, const std::string& directory) {
  std::set<std::string, std::less<>> names;
  ForEachTensor(weights.table(), parts, [&](const SavedPart& part, const StoredTensor& stored) {
    names.insert(stored.name + part.suffix);
    files.Check(stored.name + part.suffix, stored.shape);
  });
  for (const std::string& name : files.Names())
    Require(names.contains(name), "{}: tensor '{}' is none of this model's", directory, name);
}

// What this rank keeps of a tensor, which the files have under this name.
void ReadKept(const SafetensorsDirectory& files, const std::string& name, ShardedWeights& weights,
              const SavedPart& part, const StoredTensor& stored) {
  const Range elements = weights.Kept(part.unit, {stored.offset, stored.offset + stored.num_elements});
  if (elements.empty()) return;
  const Tensor shard = weights.State(part.unit).*part.tensor;
  float* const to = shard.data<float>() + (elements.begin - weights.Kept(part.unit).begin);
  files.ReadFloat32(name, elements.begin - stored.offset, {to, static_cast<size_t>(elements.size())});
}

// These parts, unit by unit: the masters, and the moments or not. name_of(part, stored tensor) is asked in
// the order of the file.
template <class F>
void ReadParts(const SafetensorsDirectory& files, ShardedWeights& weights,
               const std::vector<SavedPart>& parts, bool with_moments, F name_of) {
  auto part = parts.begin();
  weights.ForEachState([&](int unit, const UnitState&) {
    for (; part != parts.end() && part->unit == unit; ++part)
      for (const StoredTensor& stored : weights.table().units[static_cast<size_t>(unit)].stored)
        ReadKept(files, name_of(*part, stored), weights, *part, stored);
    weights.RefreshCompute(unit);
    weights.Changed(unit, with_moments);
  });
}

// They are of the same shape.
bool EqualTensors(const SafetensorsDirectory& files, std::string_view a, std::string_view b) {
  constexpr int64_t kElements = 1 << 20;  // compared at once
  const int64_t num_elements = files.At(a).num_elements();
  std::vector<float> values_a, values_b;
  for (int64_t first = 0; first < num_elements; first += kElements) {
    for (std::vector<float>* values : {&values_a, &values_b})
      values->resize(static_cast<size_t>(std::min(kElements, num_elements - first)));
    files.ReadFloat32(a, first, values_a);
    files.ReadFloat32(b, first, values_b);
    if (values_a != values_b) return false;
  }
  return true;
}

}  // namespace

CheckpointState LoadCheckpoint(const std::string& directory, ShardedWeights& weights) {
  const ReadingCheckpoint reading(directory);
  RequireSizes(directory);
  const CheckpointState state =
      ReadCheckpointState(directory + "/state.json", OptimizerName(weights.has_moments()));
  // The masters are in the optimizer's files; the model's are looked at, so that a checkpoint loads only if
  // it is whole.
  CheckTensors(SafetensorsDirectory(directory, "model"), weights, ModelParts(weights.table()), directory);
  const SafetensorsDirectory files(directory, "optimizer");
  const std::vector<SavedPart> parts = OptimizerParts(weights.table(), weights.has_moments());
  CheckTensors(files, weights, parts, directory);
  ReadParts(files, weights, parts, /*with_moments=*/true,
            [](const SavedPart& part, const StoredTensor& stored) { return stored.name + part.suffix; });
  return state;
}

void CheckCheckpointModel(const std::string& directory, const ModelConfig& model) {
  const std::string path = directory + "/config.json";
  const ModelConfig saved = ParseModelConfig(ReadTextFile(path), path);
  const auto keys_of = [](const ModelConfig& config) {
    json keys = json::parse(WriteModelConfig(config, "", DType::kFloat32));
    keys.erase("max_position_embeddings");  // neither changes what is computed
    keys.erase("initializer_range");
    return keys;
  };
  const json was = keys_of(saved), is = keys_of(model), absent;
  for (const auto& [key, value] : is.items())
    Require(was.contains(key) && was[key] == value,
            "{} is of another model than model_path: {} is {} there and {} here; go on with the model that "
            "the run began with",
            path, key, Quoted(was.contains(key) ? was[key] : absent), Quoted(value));
}

std::vector<std::string> FindModelTensors(const ParamTable& table, const SafetensorsDirectory& files,
                                          const std::string& directory) {
  bool tied = true;
  for (const StoredTensor& tensor : table.units.back().stored) tied = tied && tensor.name != kHeadName;

  std::vector<std::string> found;
  std::set<std::string, std::less<>> known = {kHeadName};
  for (const ParamUnit& unit : table.units) {
    for (const StoredTensor& tensor : unit.stored) {
      const bool is_head =
          tied && tensor.name == kEmbeddingName && !files.Has(tensor.name) && files.Has(kHeadName);
      found.push_back(is_head ? kHeadName : tensor.name);
      files.Check(found.back(), tensor.shape);
      known.insert(tensor.name);
    }
  }
  for (const std::string& name : files.Names())
    Require(known.contains(name) || name.ends_with(kNoWeight), "{}: tensor '{}' is none of this model's",
            directory, name);
  if (tied && files.Has(kHeadName) && files.Has(kEmbeddingName)) {
    files.Check(kHeadName, files.Shape(kEmbeddingName));
    Require(
        EqualTensors(files, kEmbeddingName, kHeadName),
        "{}: config.json says tie_word_embeddings, but {} and {} differ; set it to false to train them apart",
        directory, kEmbeddingName, kHeadName);
  }
  return found;
}

void LoadModelWeights(const std::string& directory, ShardedWeights& weights) {
  const ReadingCheckpoint reading(directory);
  if (weights.is_first_rank()) RequireContents(directory, "model");
  const SafetensorsDirectory files(directory, "model");
  const std::vector<std::string> names = FindModelTensors(weights.table(), files, directory);
  size_t i = 0;
  ReadParts(files, weights, ModelParts(weights.table()), /*with_moments=*/false,
            [&](const SavedPart&, const StoredTensor&) { return names[i++]; });
  CHECK(i == names.size());
}

}  // namespace longspan
