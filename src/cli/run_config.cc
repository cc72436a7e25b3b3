#include "cli/run_config.h"

#include <fmt/ranges.h>

#include "cli/data_keys.h"
#include "data/packing.h"
#include "mask/mask.h"
#include "model/config.h"
#include "model/remat_policy.h"
#include "parallel/strategy.h"

namespace longspan {
namespace {

constexpr double kMostRanks = 65536, kMostThreads = 4096;
// So that sums and products of sizes stay within 64 bits, and numbers that become float32 within its range.
constexpr double kMostTokens = 1LL << 31;  // whose pairs are counted in 64 bits
constexpr double kMostSteps = 1LL << 40, kMostSequences = 1LL << 31;
constexpr double kMostNumber = 1e6, kMostJudged = 1 << 20;

template <class Row>
std::vector<std::string_view> NamesOf(std::span<const Row> table) {
  std::vector<std::string_view> names;
  for (const Row& row : table) names.push_back(row.name);
  return names;
}

}  // namespace

KeyList TrainKeys(TrainConfig& config) {
  KeyList keys;

  keys.Group("Model and data");
  Key& model = keys.Add("model_path", &config.model_path,
                        "A built-in model's name, which starts from scratch, or a Hugging Face directory, a "
                        "checkpoint or a run, "
                        "which continues from its weights.");
  model.required = true;
  model.required_hint = fmt::format(" (built-in models: {})", fmt::join(BuiltinModelNames(), ", "));
  keys.Add("data_path", &config.data_path,
           "Text to train on: a text file, a JSONL file of `text` or `input_ids`, either compressed (.gz, "
           ".zst), a "
           "token file (`longspan tokenize`), or a folder of such files; a map {PATH: WEIGHT, …} draws each "
           "sequence "
           "from one of several, in proportion to the weights.")
      .required = true;
  keys.Add("eval_data_path", &config.eval_data_path,
           "Held-out text in the same forms, used if eval_interval is set; empty: none.");
  AddFolderKeys(keys, config.data_options);
  keys.Add("tokenizer_path", &config.tokenizer_path,
           "What makes ids of text: a directory with a tokenizer, or a tokenizer.json, *.tiktoken or "
           "SentencePiece "
           "*.model; empty: the model directory's, or bytes if it has none.");
  keys.Add("tokenizer_pattern", &config.tokenizer_pattern,
           "For a *.tiktoken: the name of its encoding or a regular expression; empty: it is named after the "
           "encoding.");
  keys.Add("max_target_length", &config.max_target_length, "Tokens of a sequence, all ranks together.",
           Between(1, kMostTokens));
  keys.Add(
      "rope_theta", &config.rope_theta,
      "Another base of the rotary embedding, that of full_attention where layers differ; written into the "
      "saved config.json. 0: the model's.",
      Between(0, 1e12));
  keys.Add(
      "rope_scaling", &config.rope_scaling,
      "Another scaling of that embedding, with config.json's keys: {rope_type: yarn, factor: 4}; default "
      "ends one; written into the saved config.json. Empty: the model's.");
  keys.Add("init_weights_seed", &config.init_weights_seed, "Seed of the initial weights.", AtLeast(0));
  keys.Add("data_shuffle_seed", &config.data_shuffle_seed, "Seed of the documents' order.", AtLeast(0));
  keys.Add("enable_data_shuffling", &config.enable_data_shuffling,
           "Shuffle the documents anew in each epoch.");
  keys.Add(
      "packing", &config.packing,
      "How documents share sequences: best_fit (next to no padding, and only documents that are longer are "
      "cut), concatenate (no padding, documents cut where a sequence ends), none (one document a sequence).",
      {}, NamesOf(PackingTable()));

  keys.Group("Run directory");
  keys.Add("run_name", &config.run_name,
           "Name of the run, a folder below base_output_directory; empty: made from model and time.");
  keys.Add("base_output_directory", &config.base_output_directory, "Where runs lie.");
  keys.Add("enable_checkpointing", &config.enable_checkpointing,
           "Save checkpoints; the last step is then always saved.");
  keys.Add("checkpoint_period", &config.checkpoint_period, "Steps between checkpoints.",
           Between(1, kMostSteps));
  keys.Add("max_num_checkpoints_to_keep", &config.max_num_checkpoints_to_keep,
           "Once a checkpoint is complete, older ones than the newest so many are removed; 0: none is.",
           Between(0, kMostSteps));
  keys.Add("on_checkpoint_error", &config.on_checkpoint_error,
           "When a checkpoint cannot be written (a full disk): stop ends the run with the error, continue "
           "warns and tries again at the next one. What was saved before stays either way.",
           {}, {"stop", "continue"});
  keys.Add(
      "resume", &config.resume,
      "none (a run directory that already has steps is refused), auto (from the run's newest checkpoint that "
      "is not damaged, if it has any) or "
      "the path of a checkpoint.");
  keys.Add("save_dtype", &config.save_dtype, "Type of a checkpoint's model weights.", {},
           {"float32", "bfloat16"});
  keys.Add("max_shard_bytes", &config.max_shard_bytes,
           "A checkpoint's weights are split into files of at most so many bytes.", AtLeast(1));
  keys.Add("enable_tensorboard", &config.enable_tensorboard,
           "Write the measures of each step to event files in tensorboard/, for TensorBoard.");
  keys.Add("profile", &config.profile,
           "Write a trace of some steps, all ranks, to profile/trace.json, for chrome://tracing or "
           "ui.perfetto.dev; changes no bit of the result.");
  keys.Add("skip_first_n_steps_for_profiler", &config.skip_first_n_steps_for_profiler,
           "Steps before the first that is traced.", Between(0, kMostSteps));
  keys.Add("profiler_steps", &config.profiler_steps, "Steps that are traced.", Between(1, kMostSteps));

  keys.Group("Steps and optimizer");
  keys.Add("steps", &config.steps, "Updates of the whole run; a resumed one goes on up to this count.",
           Between(1, kMostSteps));
  keys.Add("global_batch_size", &config.global_batch_size,
           "Sequences of a step; 0: one for each data parallel rank.", Between(0, kMostSequences));
  keys.Add("opt_type", &config.opt_type, "Optimizer.", {}, {"adamw", "sgd"});
  keys.Add("learning_rate", &config.learning_rate, "Highest learning rate of the schedule.",
           Between(0, kMostNumber));
  keys.Add("lr_schedule_type", &config.lr_schedule_type,
           "What follows the warm-up: a cosine, constant then decay, constant.", {},
           {"cosine", "wsd", "constant"});
  keys.Add("learning_rate_schedule_steps", &config.learning_rate_schedule_steps,
           "Steps that the schedule spans, so that a run can stop and go on; -1: steps.",
           Or(-1, Between(1, kMostSteps)));
  keys.Add("warmup_steps_fraction", &config.warmup_steps_fraction,
           "Part of the schedule in which the rate rises from 0.", Between(0, 1));
  keys.Add("learning_rate_final_fraction", &config.learning_rate_final_fraction,
           "Learning rate at the schedule's end, as a fraction of the highest.", Between(0, 1));
  keys.Add("wsd_decay_steps_fraction", &config.wsd_decay_steps_fraction,
           "Part of a wsd schedule, at its end, in which it decays.", Between(0, 1));
  keys.Add("adam_b1", &config.adam_b1, "Decay of AdamW's first moment.", Between(0, 0.999999));
  keys.Add("adam_b2", &config.adam_b2, "Decay of AdamW's second moment.", Between(0, 0.999999));
  keys.Add("adam_eps", &config.adam_eps, "AdamW's epsilon, outside the square root.",
           Between(1e-30, kMostNumber));
  keys.Add("adam_weight_decay", &config.adam_weight_decay,
           "Decoupled weight decay of matrices and embeddings.", Between(0, kMostNumber));
  keys.Add("gradient_clipping_threshold", &config.gradient_clipping_threshold,
           "Global norm to which larger gradients are scaled down; 0: no clipping.", AtLeast(0));
  keys.Add("skip_step_on_nan", &config.skip_step_on_nan,
           "A step whose loss or gradient is not finite leaves weights and optimizer as they were; otherwise "
           "it ends the run.");
  keys.Add("skip_step_on_spikes", &config.skip_step_on_spikes,
           "So does a step whose loss or gradient norm is far above those of the steps before it.");
  keys.Add("skip_step_interval", &config.skip_step_interval,
           "Steps before it that a step is judged by; it is taken anyway while there are not half as many.",
           Between(2, kMostJudged));
  keys.Add("skip_step_scaling_factor", &config.skip_step_scaling_factor,
           "Standard deviations above their mean that are a spike.", Between(0, kMostNumber));
  keys.Add("eval_interval", &config.eval_interval, "Steps between evaluations on eval_data_path; -1: never.",
           Or(-1, Between(1, kMostSteps)));
  keys.Add("eval_steps", &config.eval_steps, "Batches of an evaluation; -1: the whole held-out text.",
           Or(-1, Between(1, kMostSteps)));

  keys.Group("Ranks");
  keys.Add("ranks", &config.ranks,
           "Ranks of the run: threads of this process or, started by mpirun, its processes, of which there "
           "are then so many.",
           Between(1, kMostRanks));
  keys.Add("threads_per_rank", &config.threads_per_rank,
           "Compute threads of a rank; 0: cores / ranks, at least 1.", Between(0, kMostThreads));
  keys.Add("data_parallelism", &config.data_parallelism,
           "Groups of ranks that take different sequences; -1: what is left.",
           Or(-1, Between(1, kMostRanks)));
  keys.Add(
      "fsdp_parallelism", &config.fsdp_parallelism,
      "The same, but the groups share one copy of the weights; needs shard_parameters; -1: what is left.",
      Or(-1, Between(1, kMostRanks)));
  keys.Add("shard_parameters", &config.shard_parameters,
           "Weights, gradients and optimizer state are spread over the ranks of a sequence and of "
           "fsdp_parallelism, not whole on each; changes no bit of the result.");
  keys.Add(
      "context_parallelism", &config.context_parallelism,
      "Ranks of the ring (or of the gather) that share a sequence; 0: the strategy's default; -1: what is "
      "left.",
      Between(-1, kMostRanks));
  keys.Add(
      "ulysses_parallelism", &config.ulysses_parallelism,
      "Ranks that share a sequence by heads, inside each place of the ring; 0: the strategy's default; -1: "
      "what is left.",
      Between(-1, kMostRanks));
  keys.Add("failure_timeout", &config.failure_timeout,
           "A rank that others wait for has failed, and the run ends, once it has neither computed, read nor "
           "written for so many seconds, or not answered.",
           Between(0.1, 1e6));
  std::vector<std::string_view> strategies = NamesOf(StrategyTable());
  strategies.push_back("auto");
  keys.Add(
      "context_parallel_strategy", &config.context_parallel_strategy,
      "How ranks that share a sequence compute its attention; a map from each of the model's layer types, "
      "like {sliding_attention: ulysses, full_attention: ring}, has each type done in its own way.",
      {}, std::move(strategies));
  keys.Add(
      "hardware", &config.hardware,
      "Of context_parallel_strategy=auto, which takes the strategy and the sizes of the mesh that are "
      "planned "
      "to be the fastest of those that fit and agree with the sizes that are given: the machine that is "
      "planned for, by a name that `longspan plan` knows or the path of a hardware file; this: the file that "
      "`longspan calibrate` has made of this machine.");
  keys.Add(
      "context_parallel_layout", &config.context_parallel_layout,
      "Which tokens a rank holds; auto: zigzag where documents are as long as the sequence, striped where "
      "they are packed.",
      {}, {"auto", "contiguous", "zigzag", "striped"});
  keys.Add("stripe_length", &config.stripe_length, "Consecutive tokens of a stripe of the striped layout.",
           Between(1, kMostTokens));

  keys.Group("Memory");
  std::vector<std::string_view> policies = NamesOf(RematPolicyTable());
  policies.insert(policies.end(), {"custom", "auto"});
  keys.Add(
      "remat_policy", &config.remat_policy,
      "What a layer keeps for the backward pass, which computes the rest again, to the same bits: a named "
      "policy, custom, by the nine keys that follow, or auto, the cheapest that fits (docs/memory.md).",
      {}, std::move(policies));
  const auto add_placement = [&](std::string_view name, std::string* field, std::string_view meaning) {
    keys.Add(name, field, meaning, {}, {PlacementNames().begin(), PlacementNames().end()});
  };
  add_placement(
      "decoder_layer_input", &config.decoder_layer_input,
      "Of remat_policy=custom: the input of a layer, which stays on the device or is offloaded; empty: "
      "device.");
  add_placement(
      "query_proj", &config.query_proj,
      "Of custom: the queries, after their norm and rotary embedding; empty: remat, computed again.");
  add_placement("key_proj", &config.key_proj, "Of custom: the keys, likewise; empty: remat.");
  add_placement("value_proj", &config.value_proj, "Of custom: the values; empty: remat.");
  add_placement(
      "context", &config.context,
      "Of custom: what attention gives, and its log-sum-exp; empty: remat, attention is computed twice.");
  add_placement(
      "out_proj", &config.out_proj,
      "Of custom: the output of the projection behind attention, before it is added; empty: remat.");
  add_placement("mlpwi_0", &config.mlpwi_0,
                "Of custom: the feed-forward layer's gate, before its activation; empty: remat.");
  add_placement("mlpwi_1", &config.mlpwi_1,
                "Of custom: what is gated there, the output of the up projection; empty: remat.");
  add_placement(
      "mlpwo", &config.mlpwo,
      "Of custom: the output of the down projection. Only models that norm it (Gemma) need it again; "
      "others never keep it. Empty: remat.");
  keys.Add(
      "optimizer_memory_host_offload", &config.optimizer_memory_host_offload,
      "AdamW's moments are offloaded: an update brings those of one part of the model after the other to "
      "the device and back, to the same bits.");
  keys.Add("parameter_memory_host_offload", &config.parameter_memory_host_offload,
           "The weights are offloaded, masters and compute weights: those of one part of the model after the "
           "other are brought to the device where it is computed with and updated, to the same bits.");
  keys.Add("offload_directory", &config.offload_directory,
           "A folder on a fast disk: what is offloaded is kept in a file there that has no name and is gone "
           "when the run ends, however it ends; empty: in host memory.");
  keys.Add("device_memory_limit", &config.device_memory_limit,
           "What a rank may take of its device's memory, bytes like 24GiB, 80GB or 512MiB: a run that would "
           "take more is refused before it starts, with what would fit; empty: all that there is.");
  keys.Add(
      "tokens_per_pass", &config.tokens_per_pass,
      "A longer sequence is walked in passes of at most so many tokens, each of the whole documents that "
      "fit, and takes the memory of one pass; no document may be longer. 0: all at once.",
      Between(0, kMostTokens));

  keys.Group("Attention and numbers");
  keys.Add("attention_mask", &config.attention_mask, "Which keys of its document a row sees.", {},
           NamesOf(MaskTable()));
  keys.Add("sliding_window_size", &config.sliding_window_size,
           "Keys that a row of the sliding_window and sink_window masks sees, itself included.",
           Between(0, kMostTokens));
  keys.Add("chunk_attn_window_size", &config.chunk_attn_window_size, "Length of a chunk of the chunked mask.",
           Between(0, kMostTokens));
  keys.Add("prefix_length", &config.prefix_length,
           "First tokens of a document that all its rows see under the prefix mask.",
           Between(0, kMostTokens));
  keys.Add("attention_sink_tokens", &config.attention_sink_tokens,
           "First tokens of a document that stay visible under the sink_window mask.",
           Between(0, kMostTokens));
  keys.Add("dtype", &config.dtype,
           "Type of activations and compute weights; sums, master weights and optimizer are float32.", {},
           {"float32", "bfloat16"});
  keys.Add("mlp_chunk_length", &config.mlp_chunk_length,
           "Rows that go through the feed-forward layer at a time.", Between(1, kMostTokens));
  keys.Add("loss_chunk_length", &config.loss_chunk_length,
           "Rows that go through the head and the loss at a time.", Between(1, kMostTokens));
  keys.Add("peak_tflops", &config.peak_tflops,
           "Peak of the machine in TFLOP/s, all ranks together, for MFU and HFU; 0: measured at the start.",
           Or(0, Between(1e-6, 1e12)));
  return keys;
}

void AddTrainedModelKey(KeyList& keys, TrainConfig& config) {
  keys.Add("model_path", &config.model_path, "A Hugging Face directory, such as a checkpoint.").required =
      true;
}

void AddRunKeys(KeyList& keys, const KeyList& train, std::span<const std::string_view> names) {
  keys.AddFrom(train, names);
  keys.Get("context_parallel_strategy").choices = NamesOf(StrategyTable());
}

TrainConfig LoadTrainConfig(std::span<const std::string> arguments, int64_t ranks) {
  TrainConfig config;
  config.ranks = ranks;
  LoadKeys("train", TrainKeys(config), arguments);
  return config;
}

std::string WriteRecipe(const TrainConfig& config) {
  TrainConfig copy = config;
  return WriteRecipe(TrainKeys(copy));
}

}  // namespace longspan
