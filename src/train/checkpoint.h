// Loading checkpoints: Hugging Face model directories with the optimizer beside the weights
// (docs/reference/run-directory.md). checkpoint_saver.h writes them.
//
//   config.json, generation_config.json, tokenizer files
//   model.safetensors, or numbered shards and model.safetensors.index.json
//   optimizer.safetensors (or shards): <name>.master, .exp_avg, .exp_avg_sq, all f32
//   state.json, checksums.json
#pragma once

#include <string>
#include <vector>

#include "train/checkpoint_state.h"
#include "train/safetensors.h"
#include "train/weights.h"

namespace longspan {

// Reads one back: masters, moments, state. The moments must be those of the run: a checkpoint of AdamW does
// not load into SGD, nor the other way round. Throws Error naming file and tensor for whatever is missing or
// wrong; all headers and sizes are checked before a weight changes (VerifyCheckpoint looks at the contents).
// A rank reads what it keeps.
CheckpointState LoadCheckpoint(const std::string& directory, ShardedWeights& weights);
// Throws Error naming the first key in which the checkpoint's config.json makes another model than `model`,
// or if that file cannot be read.
void CheckCheckpointModel(const std::string& directory, const ModelConfig& model);
// The names under which the files of a Hugging Face directory have a model's tensors, in the table's order.
// Every tensor must be one of the model's, but for `rotary_emb.inv_freq` and a tied model's lm_head.weight,
// which must equal the embedding (and stands for it where only the head is stored). Throws Error as above.
std::vector<std::string> FindModelTensors(const ParamTable& table, const SafetensorsDirectory& files,
                                          const std::string& directory);
// Only the weights of any Hugging Face directory (model.safetensors or its shards by index). Those of a
// checkpoint the first rank reads once more, for their checksums.
void LoadModelWeights(const std::string& directory, ShardedWeights& weights);

}  // namespace longspan
