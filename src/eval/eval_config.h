// EvalConfig: what `longspan eval` does. Each field is a key under the same name; cli/eval_command.cc lists
// them.
#pragma once

#include <cstdint>
#include <string>

#include "train/train_config.h"

namespace longspan {

struct EvalConfig {
  EvalConfig() { run.max_target_length = 0; }  // the model's max_position_embeddings

  TrainConfig run;        // what it has in common with training, by the same keys: model, ranks, numbers
  std::string data_path;  // of task=loss: one text

  std::string task = "loss";  // loss (of a text, by position), or one of TaskTable()
  std::string task_path;      // of key_value and bible: the file
  std::string task_lengths;   // "4096,8192": tokens of a case; empty: max_target_length
  std::string
      task_depths;  // "0,50,100": where the answer stands, in percent of the text; empty: in five places
  int64_t task_samples = 10;  // cases of each length and depth
  int64_t task_choices = 10;  // answers that are compared, the right one included
  int64_t task_seed = 0;

  std::string format = "table";  // table | json
  std::string html;              // a page is written here; empty: none
};

}  // namespace longspan
