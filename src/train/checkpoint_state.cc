#include "train/checkpoint_state.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "core/file.h"
#include "data/json.h"

namespace longspan {
namespace {

using nlohmann::json;

constexpr int64_t kMostSteps = int64_t{1} << 40;  // that a run can be given
constexpr int64_t kStateVersion = 2;              // 1 had one source, without path or window

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

CheckpointState ReadCheckpointState(const std::string& path, const std::string& wanted_optimizer) {
  const json state = ParseJson(ReadTextFile(path), path);
  Require(state.is_object(), "{}: no JSON object", path);
  const int64_t version = Whole(state, "version", path);
  Require(version >= 1 && version <= kStateVersion, "{}: version {}; this longspan reads versions 1 to {}",
          path, version, kStateVersion);
  const std::string optimizer = state.value("optimizer", json()).dump();
  Require(wanted_optimizer.empty() || optimizer == json(wanted_optimizer).dump(),
          "{}: saved by a run with opt_type {}, but this run has opt_type \"{}\"; resume with "
          "the same, or start from the weights alone (model_path)",
          path, optimizer, wanted_optimizer);
  CheckpointState result;
  result.step = Whole(state, "step", path);
  result.optimizer_step = Whole(state, "optimizer_step", path);
  Require(std::max(result.step, result.optimizer_step) <= kMostSteps,
          "{}: step {} and optimizer_step {}; no run has more than {}", path, result.step,
          result.optimizer_step, kMostSteps);
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

}  // namespace longspan
