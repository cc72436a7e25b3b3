// Checkpoints: Hugging Face model directories with the optimizer beside the weights (docs/reference, "A run on disk").
#pragma once

#include <cstdint>
#include <string>

#include "data/packing.h"
#include "train/weights.h"

namespace longspan {

// state.json: what a run needs besides tensors to go on bit for bit.
struct CheckpointState {
  int64_t step = 0;                  // updates done
  ReaderPosition reader;
  int64_t optimizer_step = 0;        // AdamW's count
};

struct SaveOptions {
  DType dtype = DType::kFloat32;             // of model.safetensors
  int64_t max_shard_bytes = int64_t{5} << 30;
  std::string config_json;                   // text of config.json
  std::string tokenizer_directory;           // tokenizer files are copied from here; empty: none
};

// Writes checkpoints/<step, 8 digits>/ aside and renames it, then points checkpoints/latest at it. Throws
// Error(kResource) (disk full, …) leaving the checkpoints before untouched and nothing half-written.
void SaveCheckpoint(const std::string& checkpoints_directory, const ResidentWeights& weights,
                    const CheckpointState& state, const SaveOptions& options);
// Reads one back: masters, moments, state. Throws Error naming file and tensor for whatever is missing or wrong.
CheckpointState LoadCheckpoint(const std::string& directory, ResidentWeights& weights);
// Only the weights of any Hugging Face directory (model.safetensors or its shards by index).
void LoadModelWeights(const std::string& directory, ResidentWeights& weights);
// checkpoints/latest resolved, or empty if there is none.
std::string LatestCheckpoint(const std::string& checkpoints_directory);

}  // namespace longspan
