// TrainConfig: what a run does. Each field is a key of the recipe, under the same name; cli/run_config.cc
// lists them once with range, default and meaning.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "data/data_options.h"
#include "model/activations.h"

namespace longspan {

struct TrainConfig {
  // Model and data.
  std::string model_path;  // built-in name (from scratch), or a directory: Hugging Face, checkpoint, run
  std::map<std::string, std::string> data_path;  // "" → path; or several paths, each → weight
  std::string eval_data_path;
  DataOptions data_options;                       // a key each
  std::string tokenizer_path, tokenizer_pattern;  // empty: the model's own, or bytes
  int64_t max_target_length = 2048;
  double rope_theta = 0;                            // 0: the model's
  std::map<std::string, std::string> rope_scaling;  // keys of config.json's; empty: the model's
  int64_t init_weights_seed = 0, data_shuffle_seed = 0;
  bool enable_data_shuffling = true;
  std::string packing = "best_fit";  // none | concatenate | best_fit

  // Run directory.
  std::string run_name, base_output_directory = "runs";
  bool enable_checkpointing = true;
  int64_t checkpoint_period = 1000;
  int64_t max_num_checkpoints_to_keep = 0;   // 0: all
  std::string on_checkpoint_error = "stop";  // stop | continue
  std::string resume = "none";               // none | auto | PATH of a checkpoint
  std::string save_dtype = "float32";
  int64_t max_shard_bytes = int64_t{5} << 30;
  bool enable_tensorboard = true;
  bool profile = false;
  int64_t skip_first_n_steps_for_profiler = 1, profiler_steps = 2;

  // Steps and optimizer.
  int64_t steps = 100;
  int64_t global_batch_size = 0;   // sequences a step; 0: one for each data rank
  std::string opt_type = "adamw";  // adamw | sgd
  double learning_rate = 3e-5;
  std::string lr_schedule_type = "cosine";  // cosine | wsd | constant
  int64_t learning_rate_schedule_steps = -1;
  double warmup_steps_fraction = 0.1, learning_rate_final_fraction = 0.1, wsd_decay_steps_fraction = 0.1;
  double adam_b1 = 0.9, adam_b2 = 0.95, adam_eps = 1e-8, adam_weight_decay = 0.1;
  double gradient_clipping_threshold = 1.0;  // 0: no clipping
  bool skip_step_on_nan = false, skip_step_on_spikes = false;
  int64_t skip_step_interval = 128;
  double skip_step_scaling_factor = 6.0;
  int64_t eval_interval = -1, eval_steps = -1;  // −1: never; all of the held-out text

  // Ranks.
  int64_t ranks = 1, threads_per_rank = 0;  // 0: cores / ranks, at least 1
  int64_t data_parallelism = 1, fsdp_parallelism = 1;
  bool shard_parameters = false;
  double failure_timeout = 60;                               // seconds
  int64_t context_parallelism = 0, ulysses_parallelism = 0;  // 0: the strategy's default; −1: what is left
  // By the model's layer types; one for all of them stands under "".
  std::map<std::string, std::string> context_parallel_strategy = {{"", "ring"}};  // or auto
  std::string hardware = "this";                 // planned for where that is auto
  std::string context_parallel_layout = "auto";  // auto | contiguous | zigzag | striped
  int64_t stripe_length = 64;

  // Memory.
  std::string remat_policy = "save_qkv_proj_with_context";  // a name of RematPolicyTable, or custom
  // Of custom: device | offload | remat; empty: device for the input of a layer, remat for the others.
  std::string decoder_layer_input, query_proj, key_proj, value_proj, context, out_proj, mlpwi_0, mlpwi_1,
      mlpwo;
  bool optimizer_memory_host_offload = false;  // AdamW's moments
  bool parameter_memory_host_offload = false;  // master and compute weights
  std::string offload_directory;               // empty: what is offloaded goes to host memory
  std::string device_memory_limit;             // of a rank, bytes like 24GiB; empty: none
  int64_t tokens_per_pass = 0;                 // 0: all of a sequence

  // Attention and numbers.
  std::string attention_mask = "causal";
  int64_t sliding_window_size = 0, chunk_attn_window_size = 0, prefix_length = 0, attention_sink_tokens = 0;
  std::string dtype = "bfloat16";  // float32 | bfloat16
  int64_t mlp_chunk_length = 1024, loss_chunk_length = 256;
  double peak_tflops = 0;  // of the machine, all ranks together; 0: measured at start

  // Whether weights or optimizer state go where offload_directory says.
  bool offloads_state() const { return optimizer_memory_host_offload || parameter_memory_host_offload; }
};

// The keys of remat_policy=custom, and what each places.
struct PlacementKey {
  Activation id;
  std::string TrainConfig::*field;
};
inline constexpr PlacementKey kPlacementKeys[] = {
    {Activation::kDecoderLayerInput, &TrainConfig::decoder_layer_input},
    {Activation::kQueryProj, &TrainConfig::query_proj},
    {Activation::kKeyProj, &TrainConfig::key_proj},
    {Activation::kValueProj, &TrainConfig::value_proj},
    {Activation::kContext, &TrainConfig::context},
    {Activation::kOutProj, &TrainConfig::out_proj},
    {Activation::kMlpwi0, &TrainConfig::mlpwi_0},
    {Activation::kMlpwi1, &TrainConfig::mlpwi_1},
    {Activation::kMlpwo, &TrainConfig::mlpwo},
};

}  // namespace longspan
