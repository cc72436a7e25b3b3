// Conversion of model directories, tensor by tensor: another dtype, other shards, from and to checkpoints.
#pragma once

#include <cstdint>
#include <string>

namespace longspan {

struct ConvertConfig {
  std::string model_path = {};   // Hugging Face directory, checkpoint, or run (its newest checkpoint)
  std::string output = {};       // directory, which must not be there yet or be empty
  std::string dtype = "stored";  // stored | float32 | bfloat16
  int64_t max_shard_bytes = int64_t{5} << 30;
  std::string format = "huggingface";  // huggingface | checkpoint
};

struct ConvertReport {
  std::string model_directory;  // what was read
  int64_t num_tensors = 0, num_elements = 0, model_bytes = 0;
  bool keeps_state = false;  // a checkpoint of a checkpoint
};

// Writes the model of `model_path` to `output`, aside and then renamed. No more than a few megabytes of
// tensors are in memory at a time.
//
// huggingface: any model, whatever its tensors are called. Those of floats get the dtype; of a checkpoint
// they come from the float32 masters. Integers stay as they are. config.json's dtype is set, the other files
// are copied: all of the directory but hidden ones, folders, weights in any format, and a checkpoint's own.
//
// checkpoint: a model that longspan trains. A checkpoint keeps its optimizer and state; any other directory
// becomes one of AdamW that has done no step: masters are the weights, moments zero, the reader at the
// beginning. resume=OUTPUT then takes the same steps as a start from model_path.
//
// Throws Error naming file and tensor for whatever cannot be read, before anything is written.
ConvertReport Convert(const ConvertConfig& config);

}  // namespace longspan
