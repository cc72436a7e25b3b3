#include "cli/convert_command.h"

#include <fmt/format.h>

#include "cli/help.h"
#include "core/output.h"

namespace longspan {

KeyList ConvertKeys(ConvertConfig& config) {
  KeyList keys;
  keys.Group("Conversion");
  keys.Add("model_path", &config.model_path,
           "What to convert, given without `model_path=`: a Hugging Face model directory, a checkpoint, or a "
           "run, which means its newest checkpoint.")
      .required = true;
  keys.Add("output", &config.output, "The directory to write; it must not be there yet, or be empty.")
      .required = true;
  keys.Add("dtype", &config.dtype,
           "Type of all tensors of floats, or stored: each as it is. A checkpoint's weights are taken from "
           "its float32 masters.",
           {}, {"stored", "float32", "bfloat16"});
  keys.Add("max_shard_bytes", &config.max_shard_bytes,
           "The weights are split into files of at most so many bytes.", AtLeast(1));
  keys.Add("format", &config.format,
           "huggingface: a model directory. checkpoint: one with an optimizer, for resume=OUTPUT; of a model "
           "directory it is AdamW's before the first step, of a checkpoint its own.",
           {}, {"huggingface", "checkpoint"});
  return keys;
}

void ConvertCommand(std::span<const std::string> arguments) {
  ConvertConfig config;
  const KeyList keys = ConvertKeys(config);
  if (WantsHelp(arguments))
    return Answer(CommandHelp("convert",
                              "Writes the model of MODEL_PATH to a new directory, with its config, tokenizer "
                              "and other files: in another dtype, in other shards, as a plain Hugging Face "
                              "directory or as a checkpoint to train on from.",
                              keys));
  LoadKeys("convert", keys, arguments, "model_path");
  const ConvertReport report = Convert(config);
  Show(fmt::format("{:<9} {}\n{:<9} {} in {} tensors, {:.1f} MB\n{:<9} {}\n", "model", report.model_directory,
                   "weights", report.num_elements, report.num_tensors,
                   static_cast<double>(report.model_bytes) / 1e6,
                   config.format == "checkpoint" ? "resume" : "output", config.output));
}

}  // namespace longspan
