#include "train/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>

#include "core/check.h"
#include "core/file.h"
#include "data/json.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kStateVersion = 2;  // 1 had one source, without path or window
constexpr const char* kTemporaryPrefix = ".tmp-";
constexpr const char *kEmbeddingName = "model.embed_tokens.weight", *kHeadName = "lm_head.weight";
constexpr const char* kNoWeight = "rotary_emb.inv_freq";  // is computed; some old files hold it
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json",
    "merges.txt",     "added_tokens.json",     "chat_template.jinja"};

// One of the flat tensors of each unit, whose stored tensors go into a file under their names and this
// suffix.
struct SavedPart {
  int unit;
  Tensor UnitState::*tensor;
  const char* suffix;
};

// A unit's are together, so that its state is on the device once.
std::vector<SavedPart> ModelParts(const ShardedWeights& weights) {
  std::vector<SavedPart> parts;
  for (int u = 0; u < weights.table().num_units(); ++u) parts.push_back({u, &UnitState::master, ""});
  return parts;
}

std::vector<SavedPart> OptimizerParts(const ShardedWeights& weights) {
  std::vector<SavedPart> parts;
  for (int u = 0; u < weights.table().num_units(); ++u) {
    parts.push_back({u, &UnitState::master, ".master"});
    if (!weights.has_moments()) continue;
    parts.push_back({u, &UnitState::exp_avg, ".exp_avg"});
    parts.push_back({u, &UnitState::exp_avg_sq, ".exp_avg_sq"});
  }
  return parts;
}

// Calls f(part, stored tensor) in the order of the file.
template <class F>
void ForEachTensor(const ShardedWeights& weights, std::span<const SavedPart> parts, F f) {
  for (const SavedPart& part : parts)
    for (const StoredTensor& stored : weights.table().units[static_cast<size_t>(part.unit)].stored)
      f(part, stored);
}

const char* OptimizerName(const ShardedWeights& weights) { return weights.has_moments() ? "adamw" : "sgd"; }

// Saving.

void RequireDone(const std::error_code& error, const char* action, const fs::path& path) {
  Require(ExitCode::kResource, !error, "cannot {} {}: {}", action, path.string(), error.message());
}

nlohmann::ordered_json SourceJson(const SourcePosition& source) {
  nlohmann::ordered_json window = nlohmann::ordered_json::array();
  for (const auto& [length, num_sequences] : source.reader.window)
    window.push_back({{"max_target_length", length}, {"sequences", num_sequences}});
  return {{"path", source.path},
          {"weight", source.weight},
          {"sequences", source.num_sequences},
          {"epoch", source.reader.epoch},
          {"document", source.reader.document},
          {"token", source.reader.token},
          {"window", window}};
}

// A file's tensors on the first rank, which gathers each part when it comes to it.
void WriteParts(const fs::path& directory, const std::string& stem, ShardedWeights& weights,
                const std::vector<SavedPart>& parts, DType dtype, int64_t max_shard_bytes) {
  const ElementType* const type = ElementTypeOf(dtype);
  const SavedPart* gathered = nullptr;
  Tensor whole;  // of that part
  std::vector<SafetensorsSource> sources;
  ForEachTensor(weights, parts, [&](const SavedPart& part, const StoredTensor& stored) {
    const auto read = [&, mine = &part, offset = stored.offset](int64_t first, std::span<std::byte> out) {
      if (gathered != mine) whole = weights.Gather(mine->unit, mine->tensor);
      gathered = mine;
      const size_t num_elements = out.size() / static_cast<size_t>(type->bytes);
      FromFloat32(*type, {whole.data<float>() + offset + first, num_elements}, out.data());
    };
    sources.push_back({.name = stored.name + part.suffix, .type = type, .shape = stored.shape, .read = read});
  });
  WriteSafetensors(directory, stem, sources, {}, max_shard_bytes);
}

// A whole checkpoint in a directory that isn't there yet, on the disk when this returns.
void WriteCheckpoint(const fs::path& directory, ShardedWeights& weights, const CheckpointState& state,
                     const SaveOptions& options) {
  std::error_code error;
  fs::create_directory(directory, error);
  RequireDone(error, "make", directory);
  WriteNewFile(directory / "config.json", options.config_json);
  const auto copy = [&](const std::string& from, const char* name) {
    if (!from.empty() && Exists(from + "/" + name))
      WriteNewFile(directory / name, MappedFile(from + "/" + name).text());
  };
  for (const char* name : kTokenizerFiles) copy(options.tokenizer_directory, name);
  copy(options.model_directory, kGenerationConfig);
  WriteParts(directory, "model", weights, ModelParts(weights), options.dtype, options.max_shard_bytes);
  WriteParts(directory, "optimizer", weights, OptimizerParts(weights), DType::kFloat32,
             options.max_shard_bytes);
  WriteNewFile(directory / "state.json", WriteCheckpointState(state, OptimizerName(weights)));
  SyncDirectory(directory);
}

// Moves `from` to `to`, where at every moment there is a whole checkpoint or none. What was there before gets
// a temporary name.
void MoveInPlace(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::exists(to, error)) {
    fs::rename(from, to, error);
    return RequireDone(error, "make", to);
  }
  // Swapped, since a directory with files in it can't be renamed over.
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  const std::error_code swap_error(errno, std::generic_category());
  if (swap_error.value() != EINVAL && swap_error.value() != ENOSYS) RequireDone(swap_error, "replace", to);

  // A file system that can't swap (NFS, …): for a moment there is nothing, and `latest` may not name it.
  const fs::path latest = to.parent_path() / "latest";
  if (fs::read_symlink(latest, error) == to.filename()) fs::remove(latest, error);
  const fs::path aside = to.parent_path() / fmt::format("{}old", kTemporaryPrefix);
  fs::rename(to, aside, error);
  RequireDone(error, "replace", to);
  fs::rename(from, to, error);
  std::error_code ignored;  // the first one is what is said
  if (error) fs::rename(aside, to, ignored);
  RequireDone(error, "replace", to);
}

void PointLatestAt(const fs::path& checkpoints, const std::string& name) {
  const fs::path link = checkpoints / fmt::format("{}latest", kTemporaryPrefix),
                 latest = checkpoints / "latest";
  std::error_code error;
  fs::create_directory_symlink(name, link, error);
  RequireDone(error, "make", link);
  fs::rename(link, latest, error);
  RequireDone(error, "replace", latest);
}

// What this save, or an earlier one that was killed, has left.
void RemoveTemporaries(const fs::path& checkpoints, std::error_code& error) {
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator it(checkpoints, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().native().starts_with(kTemporaryPrefix)) leftovers.push_back(it->path());
  for (const fs::path& path : leftovers)
    if (!error) fs::remove_all(path, error);
}

// Loading.

int64_t Whole(const json& object, const char* key, const std::string& where) {
  Require(object.contains(key), "{}: \"{}\" is missing", where, key);
  const json& value = object[key];
  Require(value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<int64_t>::max(),
          "{}: \"{}\" is {}; a whole number is wanted", where, key, value.dump());
  return value.get<int64_t>();
}

const json& List(const json& object, const char* key, const std::string& where) {
  Require(object.contains(key) && object[key].is_array(), "{}: \"{}\" is missing, or no list", where, key);
  return object[key];
}

ReaderPosition ReadPosition(const json& object, const std::string& where) {
  return {Whole(object, "epoch", where), Whole(object, "document", where), Whole(object, "token", where), {}};
}

std::vector<StepSample> ReadRecentSteps(const json& state, const std::string& where) {
  std::vector<StepSample> steps;
  for (const json& step : List(state, "recent_steps", where)) {
    Require(step.is_object() && step.contains("loss") && step["loss"].is_number() &&
                step.contains("grad_norm") && step["grad_norm"].is_number(),
            "{}: a recent step is {}; an object with loss and grad_norm is wanted", where, Quoted(step));
    steps.push_back({step["loss"], step["grad_norm"]});
  }
  return steps;
}

CheckpointState ReadState(const std::string& path, const std::string& wanted_optimizer) {
  const json state = ParseJson(ReadTextFile(path), path);
  Require(state.is_object(), "{}: no JSON object", path);
  const int64_t version = Whole(state, "version", path);
  Require(version >= 1 && version <= kStateVersion, "{}: version {}; this longspan reads versions 1 to {}",
          path, version, kStateVersion);
  const std::string optimizer = state.value("optimizer", json()).dump();
  Require(optimizer == json(wanted_optimizer).dump(),
          "{}: saved by a run with opt_type {}, but this run has opt_type \"{}\"; resume with "
          "the same, or start from the weights alone (model_path)",
          path, optimizer, wanted_optimizer);
  CheckpointState result;
  result.step = Whole(state, "step", path);
  result.optimizer_step = Whole(state, "optimizer_step", path);
  if (state.contains("recent_steps")) result.recent_steps = ReadRecentSteps(state, path);
  if (version == 1) {
    Require(state.contains("reader") && state["reader"].is_object(), "{}: \"reader\" is missing", path);
    result.sources.emplace_back().reader = ReadPosition(state["reader"], path);
    return result;
  }
  for (const json& source : List(state, "sources", path)) {
    SourcePosition& position = result.sources.emplace_back();
    Require(source.is_object() && source.contains("path") && source["path"].is_string() &&
                source.contains("weight") && source["weight"].is_number(),
            "{}: a source is {}; an object with path and weight is wanted", path, Quoted(source));
    position.path = source["path"];
    position.weight = source["weight"];
    position.num_sequences = Whole(source, "sequences", path);
    position.reader = ReadPosition(source, path);
    for (const json& read : List(source, "window", path)) {
      Require(read.is_object(), "{}: \"window\" has {}; an object is wanted", path, Quoted(read));
      position.reader.window.push_back(
          {Whole(read, "max_target_length", path), Whole(read, "sequences", path)});
    }
  }
  return result;
}

// Throws Error unless the files hold these tensors with their shapes, and no other.
void CheckTensors(const SafetensorsDirectory& files, const ShardedWeights& weights,
                  const std::vector<SavedPart>& parts, const std::string& directory) {
  std::set<std::string, std::less<>> names;
  ForEachTensor(weights, parts, [&](const SavedPart& part, const StoredTensor& stored) {
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

std::string WriteCheckpointState(const CheckpointState& state, const std::string& optimizer) {
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const SourcePosition& source : state.sources) sources.push_back(SourceJson(source));
  nlohmann::ordered_json object = {{"version", kStateVersion},
                                   {"step", state.step},
                                   {"optimizer", optimizer},
                                   {"optimizer_step", state.optimizer_step},
                                   {"sources", sources}};
  for (const StepSample& step : state.recent_steps)
    object["recent_steps"].push_back({{"loss", step.loss}, {"grad_norm", step.grad_norm}});
  return object.dump(2) + "\n";
}

void SaveCheckpoint(const std::string& checkpoints_directory, ShardedWeights& weights,
                    const CheckpointState& state, const SaveOptions& options) {
  if (!weights.is_first_rank()) {
    for (const auto& parts : {ModelParts(weights), OptimizerParts(weights)})  // as WriteCheckpoint does
      for (const SavedPart& part : parts) weights.Gather(part.unit, part.tensor);
    return;
  }
  const fs::path checkpoints(checkpoints_directory);
  std::error_code error;
  fs::create_directories(checkpoints, error);
  RequireDone(error, "make", checkpoints);
  RemoveTemporaries(checkpoints, error);
  RequireDone(error, "remove what a killed run left in", checkpoints);

  const std::string name = fmt::format("{:08}", state.step);
  const fs::path temporary = checkpoints / (kTemporaryPrefix + name);
  try {
    WriteCheckpoint(temporary, weights, state, options);
    MoveInPlace(temporary, checkpoints / name);
    SyncDirectory(checkpoints);
    PointLatestAt(checkpoints, name);
    SyncDirectory(checkpoints);
  } catch (...) {
    RemoveTemporaries(checkpoints, error);
    throw;
  }
  RemoveTemporaries(checkpoints, error);  // the one that was replaced
  RequireDone(error, "remove the checkpoint that was replaced in", checkpoints);
}

CheckpointState LoadCheckpoint(const std::string& directory, ShardedWeights& weights) {
  const CheckpointState state = ReadState(directory + "/state.json", OptimizerName(weights));
  // The masters are in the optimizer's files; the model's are looked at, so that a checkpoint loads only if
  // it is whole.
  CheckTensors(SafetensorsDirectory(directory, "model"), weights, ModelParts(weights), directory);
  const SafetensorsDirectory files(directory, "optimizer");
  const std::vector<SavedPart> parts = OptimizerParts(weights);
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
  const SafetensorsDirectory files(directory, "model");
  const std::vector<std::string> names = FindModelTensors(weights.table(), files, directory);
  size_t i = 0;
  ReadParts(files, weights, ModelParts(weights), /*with_moments=*/false,
            [&](const SavedPart&, const StoredTensor&) { return names[i++]; });
  CHECK(i == names.size());
}

std::string LatestCheckpoint(const std::string& checkpoints_directory) {
  const fs::path latest = fs::path(checkpoints_directory) / "latest";
  std::error_code error;
  if (!fs::exists(fs::symlink_status(latest, error))) {
    // A copy that dropped links, or a kill between two renames. Numbered directories are always whole.
    std::string newest;
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_directory, error)) {
      const std::string name = entry.path().filename();
      const bool numbered = name.size() >= 8 && std::all_of(name.begin(), name.end(),
                                                            [](char c) { return '0' <= c && c <= '9'; });
      if (numbered && std::pair(name.size(), name) > std::pair(newest.size(), newest)) newest = name;
    }
    return newest.empty() ? "" : (fs::path(checkpoints_directory) / newest).string();
  }
  const fs::path target =
      fs::is_symlink(latest, error) ? latest.parent_path() / fs::read_symlink(latest, error) : latest;
  Require(fs::is_directory(target, error),
          "{} names {}, which is no checkpoint; point it at one, or remove it", latest.string(),
          target.string());
  return target;
}

}  // namespace longspan
