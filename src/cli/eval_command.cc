#include "cli/eval_command.h"

#include <fmt/format.h>

#include "cli/help.h"
#include "cli/run_config.h"
#include "core/output.h"
#include "eval/eval.h"
#include "eval/task.h"

namespace longspan {
namespace {

constexpr double kMostTokens = 1LL << 40, kMostCases = 1LL << 20, kMostChoices = 1000;

// Of training's keys those that say the same of an evaluation.
constexpr std::string_view kModelKeys[] = {"rope_theta",       "rope_scaling",     "data_document",
                                           "data_path_filter", "data_file_header", "data_invalid_utf8",
                                           "tokenizer_path",   "tokenizer_pattern"};
constexpr std::string_view kRunKeys[] = {"ranks",
                                         "threads_per_rank",
                                         "data_parallelism",
                                         "context_parallelism",
                                         "ulysses_parallelism",
                                         "context_parallel_strategy",
                                         "context_parallel_layout",
                                         "stripe_length",
                                         "attention_mask",
                                         "sliding_window_size",
                                         "chunk_attn_window_size",
                                         "prefix_length",
                                         "attention_sink_tokens",
                                         "dtype",
                                         "mlp_chunk_length",
                                         "loss_chunk_length"};

std::vector<std::string_view> TaskNames() {
  std::vector<std::string_view> names = {"loss"};
  for (const TaskRow& row : TaskTable()) names.push_back(row.name);
  return names;
}

}  // namespace

KeyList EvalKeys(EvalConfig& config) {
  const KeyList train = TrainKeys(config.run);
  KeyList keys;
  keys.Group("Model and data");
  AddTrainedModelKey(keys, config.run);
  keys.Add("data_path", &config.data_path,
           "Text whose loss is measured, in any of the forms that training reads; of task=loss.");
  keys.AddFrom(train, kModelKeys);
  keys.Add("max_target_length", &config.run.max_target_length,
           "Tokens of a sequence, all ranks together; 0: the model's max_position_embeddings.",
           Between(0, kMostTokens));
  keys.Add("eval_steps", &config.run.eval_steps, "Sequences of the text, from its beginning; -1: all.",
           Or(-1, Between(1, kMostTokens)));

  keys.Group("Retrieval");
  keys.Add("task", &config.task, "The loss of a text, or what is to be found in one.", {}, TaskNames());
  keys.Add("task_path", &config.task_path,
           "The task's file: of key_value JSONL of `ordered_kv_records` and `key`; of bible a text with an "
           "address on "
           "every line.");
  keys.Add("task_lengths", &config.task_lengths,
           "Tokens of a case with its answer, some numbers with commas between; empty: max_target_length.");
  keys.Add("task_depths", &config.task_depths,
           "Where in the text the answer stands, in percent, with commas between; empty: 0,25,50,75,100.");
  keys.Add("task_samples", &config.task_samples, "Cases of each length and depth.", Between(1, kMostCases));
  keys.Add(
      "task_choices", &config.task_choices,
      "Answers whose likelihoods are compared, the right one included; fewer where a text has not so many.",
      Between(2, kMostChoices));
  keys.Add("task_seed", &config.task_seed, "Seed of the cases.", AtLeast(0));

  AddRunKeys(keys, train, kRunKeys);

  keys.Group("Report");
  keys.Add("format", &config.format, "A table, or JSON (docs/reference/eval.md).", {}, {"table", "json"})
      .is_option = true;
  keys.Add("html", &config.html, "A page with a picture is written to this file; empty: none.");
  return keys;
}

void EvalCommand(std::span<const std::string> arguments) {
  EvalConfig config;
  const KeyList keys = EvalKeys(config);
  if (WantsHelp(arguments)) {
    std::string tasks;
    for (const TaskRow& row : TaskTable()) tasks += fmt::format("  {:<18} {}\n", row.name, row.summary);
    return Answer(
        CommandHelp("eval",
                    "Measures how well a model predicts a text, by how much of it it sees, or how often it "
                    "finds what a long text holds.",
                    keys) +
        "\nTasks:\n" + tasks);
  }
  LoadKeys("eval", keys, arguments);
  Evaluate(config);
}

}  // namespace longspan
