#include "cli/generate_command.h"

#include "cli/help.h"
#include "cli/run_config.h"
#include "core/output.h"
#include "eval/generate.h"

namespace longspan {
namespace {

constexpr double kMostTokens = 1LL << 40;

// Of training's keys those that say the same here.
constexpr std::string_view kModelKeys[] = {"rope_theta", "rope_scaling", "tokenizer_path",
                                           "tokenizer_pattern"};
constexpr std::string_view kRunKeys[] = {"threads_per_rank",      "attention_mask",
                                         "sliding_window_size",   "chunk_attn_window_size",
                                         "attention_sink_tokens", "dtype"};

}  // namespace

KeyList GenerateKeys(GenerateConfig& config) {
  const KeyList train = TrainKeys(config.run);
  KeyList keys;
  keys.Group("Model and data");
  AddTrainedModelKey(keys, config.run);
  keys.AddFrom(train, kModelKeys);
  keys.Add("prompt", &config.prompt, "The text to go on from.");
  keys.Add("prompt_path", &config.prompt_path, "A file that holds it, instead.");
  keys.Add("prompt_special_tokens", &config.prompt_special_tokens,
           "Special tokens that the prompt spells are themselves; else they are text like any other.");

  keys.Group("Sampling");
  keys.Add("max_new_tokens", &config.max_new_tokens,
           "Tokens after which the text ends, if none of the model's eos_token_id comes before.",
           Between(1, kMostTokens));
  keys.Add("temperature", &config.temperature, "Divides the logits; 0: always the likeliest token.",
           Between(0, 1e6));
  keys.Add("top_k", &config.top_k, "Only so many of the likeliest tokens are drawn from; 0: all.",
           Between(0, kMostTokens));
  keys.Add("top_p", &config.top_p,
           "Of these only the likeliest ones that together have this probability, one at least.",
           Between(0, 1));
  keys.Add("seed", &config.seed, "Seed of the draws.", AtLeast(0));

  keys.AddFrom(train, kRunKeys);
  return keys;
}

void GenerateCommand(std::span<const std::string> arguments) {
  GenerateConfig config;
  const KeyList keys = GenerateKeys(config);
  if (WantsHelp(arguments))
    return Answer(
        CommandHelp("generate", "Prints text that goes on from a prompt, as its tokens come.", keys));
  LoadKeys("generate", keys, arguments);
  Generate(config);
}

}  // namespace longspan
