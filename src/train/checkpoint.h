// Checkpoints: Hugging Face model directories with the optimizer beside the weights (docs/reference, "A run
// on disk").
//
//   checkpoints/00000100/   config.json, generation_config.json, tokenizer files
//                           model.safetensors, or numbered shards and model.safetensors.index.json
//                           optimizer.safetensors (or shards): <name>.master, .exp_avg, .exp_avg_sq, all f32
//                           state.json
//   checkpoints/latest      a relative symbolic link
//   checkpoints/.tmp-…      what is being written, or was when a run was killed; the next save removes it
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/mixture.h"
#include "train/safetensors.h"
#include "train/step_guard.h"
#include "train/weights.h"

namespace longspan {

// state.json: what a run needs besides tensors to go on bit for bit.
struct CheckpointState {
  int64_t step = 0;  // updates done
  std::vector<SourcePosition> sources;
  int64_t optimizer_step = 0;                 // AdamW's count
  std::vector<StepSample> recent_steps = {};  // that later ones are judged by
};

// The text of state.json; `optimizer` is the run's opt_type.
std::string WriteCheckpointState(const CheckpointState& state, const std::string& optimizer);

struct SaveOptions {
  DType dtype = DType::kFloat32;  // of model.safetensors; the masters are always saved in f32 as well
  int64_t max_shard_bytes = int64_t{5} << 30;
  std::string config_json;          // text of config.json
  std::string tokenizer_directory;  // tokenizer files are copied from here; empty: none
  std::string model_directory;      // generation_config.json likewise
};

// Writes checkpoints/<step, 8 digits>/ aside and renames it, then points checkpoints/latest at it. A
// checkpoint of the same step (of a run that went back) is replaced as a whole. Throws Error(kResource) (disk
// full, …) leaving the checkpoints before untouched and nothing half-written. One process at a time saves
// into a directory. Collective over the ranks of the weights: the first one writes, and the others hand it
// what they keep, a unit at a time; the files do not depend on how weights are sharded.
void SaveCheckpoint(const std::string& checkpoints_directory, ShardedWeights& weights,
                    const CheckpointState& state, const SaveOptions& options);
// Reads one back: masters, moments, state. The moments must be those of the run: a checkpoint of AdamW does
// not load into SGD, nor the other way round. Throws Error naming file and tensor for whatever is missing or
// wrong; all headers are checked before a weight changes. A rank reads what it keeps.
CheckpointState LoadCheckpoint(const std::string& directory, ShardedWeights& weights);
// Throws Error naming the first key in which the checkpoint's config.json makes another model than `model`,
// or if that file cannot be read.
void CheckCheckpointModel(const std::string& directory, const ModelConfig& model);
// The names under which the files of a Hugging Face directory have a model's tensors, in the table's order.
// Every tensor must be one of the model's, but for `rotary_emb.inv_freq` and a tied model's lm_head.weight,
// which must equal the embedding (and stands for it where only the head is stored). Throws Error as above.
std::vector<std::string> FindModelTensors(const ParamTable& table, const SafetensorsDirectory& files,
                                          const std::string& directory);
// Only the weights of any Hugging Face directory (model.safetensors or its shards by index).
void LoadModelWeights(const std::string& directory, ShardedWeights& weights);
// checkpoints/latest resolved, or the newest checkpoint where that link is lost, or empty if there is none.
// Throws Error if the link names nothing that exists.
std::string LatestCheckpoint(const std::string& checkpoints_directory);

}  // namespace longspan
