#include "cli/run_config.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "core/check.h"
#include "core/file.h"
#include "core/names.h"
#include "mask/mask.h"
#include "model/config.h"
#include "parallel/strategy.h"

namespace longspan {
namespace {

NumberRange AtLeast(double min) { return {.min = min}; }
NumberRange Between(double min, double max) { return {.min = min, .max = max}; }
NumberRange Or(double also, NumberRange range) {
  range.also = also;
  return range;
}
constexpr double kMostRanks = 65536, kMostThreads = 4096;
// So that sums and products of sizes stay within 64 bits, and numbers that become float32 within its range.
constexpr double kMostTokens = 1LL << 40, kMostSteps = 1LL << 40, kMostSequences = 1LL << 31;
constexpr double kMostNumber = 1e6;

template <class Row>
std::vector<std::string_view> NamesOf(std::span<const Row> table) {
  std::vector<std::string_view> names;
  for (const Row& row : table) names.push_back(row.name);
  return names;
}

std::vector<Key> MakeKeys() {
  using C = TrainConfig;
  std::vector<Key> keys;
  std::string_view group;
  const auto add = [&](std::string_view name, Key::Field field, std::string_view meaning,
                       NumberRange range = {}, std::vector<std::string_view> choices = {}) {
    keys.push_back({name, group, field, meaning, range, std::move(choices)});
  };

  group = "Model and data";
  add("model_path", &C::model_path,
      "A built-in model's name, which starts from scratch, or a Hugging Face directory, which continues from "
      "its weights.");
  keys.back().required = true;
  add("data_path", &C::data_path,
      "Text to train on: a text file, a JSONL file of `text` or `input_ids`, or a folder of such files.");
  keys.back().required = true;
  add("eval_data_path", &C::eval_data_path,
      "Held-out text in the same forms, used if eval_interval is set; empty: none.");
  add("tokenizer_path", &C::tokenizer_path,
      "What makes ids of text: a directory with a tokenizer, or a tokenizer.json, *.tiktoken or "
      "SentencePiece "
      "*.model; empty: the model directory's, or bytes if it has none.");
  add("tokenizer_pattern", &C::tokenizer_pattern,
      "For a *.tiktoken: the name of its encoding or a regular expression; empty: it is named after the "
      "encoding.");
  add("max_target_length", &C::max_target_length, "Tokens of a sequence, all ranks together.",
      Between(1, kMostTokens));
  add("init_weights_seed", &C::init_weights_seed, "Seed of the initial weights.", AtLeast(0));
  add("data_shuffle_seed", &C::data_shuffle_seed, "Seed of the documents' order.", AtLeast(0));
  add("enable_data_shuffling", &C::enable_data_shuffling, "Shuffle the documents anew in each epoch.");

  group = "Run directory";
  add("run_name", &C::run_name,
      "Name of the run, a folder below base_output_directory; empty: made from model and time.");
  add("base_output_directory", &C::base_output_directory, "Where runs lie.");
  add("enable_checkpointing", &C::enable_checkpointing,
      "Save checkpoints; the last step is then always saved.");
  add("checkpoint_period", &C::checkpoint_period, "Steps between checkpoints.", Between(1, kMostSteps));
  add("resume", &C::resume,
      "none (a run directory that already has steps is refused), auto (from the run's latest checkpoint, if "
      "it has one) or "
      "the path of a checkpoint.");
  add("save_dtype", &C::save_dtype, "Type of a checkpoint's model weights.", {}, {"float32", "bfloat16"});
  add("max_shard_bytes", &C::max_shard_bytes,
      "A checkpoint's weights are split into files of at most so many bytes.", AtLeast(1));

  group = "Steps and optimizer";
  add("steps", &C::steps, "Updates of the whole run; a resumed one goes on up to this count.",
      Between(1, kMostSteps));
  add("global_batch_size", &C::global_batch_size, "Sequences of a step; 0: one for each data parallel rank.",
      Between(0, kMostSequences));
  add("opt_type", &C::opt_type, "Optimizer.", {}, {"adamw", "sgd"});
  add("learning_rate", &C::learning_rate, "Highest learning rate of the schedule.", Between(0, kMostNumber));
  add("lr_schedule_type", &C::lr_schedule_type,
      "What follows the warm-up: a cosine, constant then decay, constant.", {},
      {"cosine", "wsd", "constant"});
  add("learning_rate_schedule_steps", &C::learning_rate_schedule_steps,
      "Steps that the schedule spans, so that a run can stop and go on; -1: steps.",
      Or(-1, Between(1, kMostSteps)));
  add("warmup_steps_fraction", &C::warmup_steps_fraction,
      "Part of the schedule in which the rate rises from 0.", Between(0, 1));
  add("learning_rate_final_fraction", &C::learning_rate_final_fraction,
      "Learning rate at the schedule's end, as a fraction of the highest.", Between(0, 1));
  add("wsd_decay_steps_fraction", &C::wsd_decay_steps_fraction,
      "Part of a wsd schedule, at its end, in which it decays.", Between(0, 1));
  add("adam_b1", &C::adam_b1, "Decay of AdamW's first moment.", Between(0, 0.999999));
  add("adam_b2", &C::adam_b2, "Decay of AdamW's second moment.", Between(0, 0.999999));
  add("adam_eps", &C::adam_eps, "AdamW's epsilon, outside the square root.", Between(1e-30, kMostNumber));
  add("adam_weight_decay", &C::adam_weight_decay, "Decoupled weight decay of matrices and embeddings.",
      Between(0, kMostNumber));
  add("gradient_clipping_threshold", &C::gradient_clipping_threshold,
      "Global norm to which larger gradients are scaled down; 0: no clipping.", AtLeast(0));
  add("eval_interval", &C::eval_interval, "Steps between evaluations on eval_data_path; -1: never.",
      Or(-1, Between(1, kMostSteps)));
  add("eval_steps", &C::eval_steps, "Batches of an evaluation; -1: the whole held-out text.",
      Or(-1, Between(1, kMostSteps)));

  group = "Ranks";
  add("ranks", &C::ranks, "Ranks of the run, threads of this process.", Between(1, kMostRanks));
  add("threads_per_rank", &C::threads_per_rank, "Compute threads of a rank; 0: cores / ranks, at least 1.",
      Between(0, kMostThreads));
  add("data_parallelism", &C::data_parallelism,
      "Groups of ranks that take different sequences; -1: what is left.", Or(-1, Between(1, kMostRanks)));
  add("context_parallelism", &C::context_parallelism,
      "Ranks of the ring (or of the gather) that share a sequence; 0: the strategy's default; -1: what is "
      "left.",
      Between(-1, kMostRanks));
  add("ulysses_parallelism", &C::ulysses_parallelism,
      "Ranks that share a sequence by heads, inside each place of the ring; 0: the strategy's default; -1: "
      "what is left.",
      Between(-1, kMostRanks));
  add("context_parallel_strategy", &C::context_parallel_strategy,
      "How ranks that share a sequence compute its attention.", {}, NamesOf(StrategyTable()));
  add("context_parallel_layout", &C::context_parallel_layout,
      "Which tokens a rank holds; auto: zigzag where documents are as long as the sequence, striped where "
      "they are packed.",
      {}, {"auto", "contiguous", "zigzag", "striped"});
  add("stripe_length", &C::stripe_length, "Consecutive tokens of a stripe of the striped layout.",
      Between(1, kMostTokens));

  group = "Attention and numbers";
  add("attention_mask", &C::attention_mask, "Which keys of its document a row sees.", {},
      NamesOf(MaskTable()));
  add("sliding_window_size", &C::sliding_window_size,
      "Keys that a row of the sliding_window and sink_window masks sees, itself included.",
      Between(0, kMostTokens));
  add("chunk_attn_window_size", &C::chunk_attn_window_size, "Length of a chunk of the chunked mask.",
      Between(0, kMostTokens));
  add("prefix_length", &C::prefix_length,
      "First tokens of a document that all its rows see under the prefix mask.", Between(0, kMostTokens));
  add("attention_sink_tokens", &C::attention_sink_tokens,
      "First tokens of a document that stay visible under the sink_window mask.", Between(0, kMostTokens));
  add("dtype", &C::dtype,
      "Type of activations and compute weights; sums, master weights and optimizer are float32.", {},
      {"float32", "bfloat16"});
  add("mlp_chunk_length", &C::mlp_chunk_length, "Rows that go through the feed-forward layer at a time.",
      Between(1, kMostTokens));
  add("loss_chunk_length", &C::loss_chunk_length, "Rows that go through the head and the loss at a time.",
      Between(1, kMostTokens));
  add("peak_tflops", &C::peak_tflops,
      "Peak of the machine in TFLOP/s, all ranks together, for MFU and HFU; 0: measured at the start.",
      Or(0, Between(1e-6, 1e12)));
  return keys;
}

const Key* FindKey(std::string_view name) {
  for (const Key& key : RunKeys())
    if (key.name == name) return &key;
  return nullptr;
}

// Throws unless it is the name of a key; the error holds the nearest one.
const Key& RequireKey(std::string_view name, const std::string& where) {
  if (const Key* key = FindKey(name)) return *key;
  const std::vector<std::string_view> names = NamesOf(RunKeys());
  const std::string_view nearest = NearestName(name, names);
  throw Error(fmt::format("{}: unknown key '{}'; {}", where, Shortened(name, kMaxShownBytes),
                          nearest.empty() ? std::string("`longspan train --help` lists them")
                                          : fmt::format("did you mean '{}'?", nearest)),
              ExitCode::kUsage);
}

// The whole text as a number; nothing if it is none, or not finite.
template <class Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(static_cast<double>(value))) return std::nullopt;
  return value;
}

std::optional<bool> ParseBool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

[[noreturn]] void FailValue(const Key& key, const std::string& got, const std::string& where) {
  throw Error(fmt::format("{}: {} wants {}, got {}", where, key.name, Wanted(key), got), ExitCode::kUsage);
}

void SetKey(TrainConfig& config, const Key& key, const std::string& text, const std::string& where) {
  const std::string got = fmt::format("'{}'", Shortened(text, kMaxShownBytes));
  const auto set_number = [&]<class Number>(Number TrainConfig::*field) {
    const std::optional<Number> value = ParseNumber<Number>(text);
    if (!value || !key.range.Contains(static_cast<double>(*value))) FailValue(key, got, where);
    config.*field = *value;
  };
  if (const auto* field = std::get_if<int64_t TrainConfig::*>(&key.field)) {
    set_number(*field);
  } else if (const auto* real = std::get_if<double TrainConfig::*>(&key.field)) {
    set_number(*real);
  } else if (const auto* flag = std::get_if<bool TrainConfig::*>(&key.field)) {
    const std::optional<bool> value = ParseBool(text);
    if (!value) FailValue(key, got, where);
    config.** flag = *value;
  } else {
    if (!key.choices.empty() && std::ranges::find(key.choices, text) == key.choices.end()) {
      const std::string_view nearest = NearestName(text, key.choices);
      FailValue(key, nearest.empty() ? got : fmt::format("{}; did you mean '{}'?", got, nearest), where);
    }
    const std::string otherwise = ValueText(key, TrainConfig{});
    if (text.empty() && !otherwise.empty())
      FailValue(key, fmt::format("none; leave the key out for '{}'", otherwise), where);
    config.*std::get<std::string TrainConfig::*>(key.field) = text;
  }
}

// One flat map. yaml-cpp's nodes keep repeated keys when they are iterated (looking one up would hide it).
void ApplyRecipe(TrainConfig& config, const std::string& text, const std::string& path,
                 std::set<std::string_view>& given) {
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(text);
  } catch (const YAML::Exception& error) {
    throw Error(fmt::format("{}:{}: not YAML: {}", path, error.mark.line + 1, error.msg), ExitCode::kUsage);
  }
  if (documents.empty()) return;  // nothing but comments
  const auto position = [&](const YAML::Node& node) {
    return fmt::format("{}:{}", path, node.Mark().line + 1);
  };
  Require(ExitCode::kUsage, documents.size() == 1, "{}: a recipe is one YAML document, got {}", path,
          documents.size());
  Require(ExitCode::kUsage, documents[0].IsMap(), "{}: a recipe is a map of `key: value` lines, got {}",
          position(documents[0]), documents[0].IsSequence() ? "a list" : "a single value");

  std::map<std::string, int> line_of;
  for (const auto& entry : documents[0]) {
    const YAML::Node& value = entry.second;
    const std::string where = position(entry.first);
    Require(ExitCode::kUsage, entry.first.IsScalar(),
            "{}: a key is a plain word, got a map, a list or nothing", where);
    const std::string& name = entry.first.Scalar();
    const auto [first, is_new] = line_of.try_emplace(name, entry.first.Mark().line + 1);
    Require(ExitCode::kUsage, is_new, "{}: key '{}' is repeated; it stands on line {} already", where, name,
            first->second);
    if (value.IsMap() && FindKey(name) == nullptr) {
      for (const auto& inner : value)
        Require(ExitCode::kUsage, !inner.first.IsScalar() || FindKey(inner.first.Scalar()) == nullptr,
                "{}: key '{}' stands inside '{}'; a recipe is one flat map, so move it to the top level",
                position(inner.first), inner.first.Scalar(), name);
    }
    const Key& key = RequireKey(name, where);
    if (value.IsMap() || value.IsSequence()) FailValue(key, value.IsMap() ? "a map" : "a list", where);
    SetKey(config, key, value.IsNull() ? std::string() : value.Scalar(), where);
    given.insert(key.name);
  }
}

std::string ReadRecipe(const std::string& path) {
  const bool is_key = FindKey(path) != nullptr;
  Require(ExitCode::kUsage, Exists(path), "recipe '{}' isn't there{}", path,
          is_key ? fmt::format("; a key is set as {}=VALUE", path)
                 : "; give the path of a YAML file, or key=value");
  Require(ExitCode::kUsage, IsRegularFile(path), "recipe '{}' is no file", path);
  return ReadTextFile(path);
}

std::string Quoted(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

}  // namespace

bool NumberRange::Contains(double value) const {
  if (also && value == *also) return true;
  return value >= min && value <= max;
}

bool NumberRange::Limits() const { return std::isfinite(min) || std::isfinite(max); }

std::span<const Key> RunKeys() {
  static const std::vector<Key> keys = MakeKeys();
  return keys;
}

std::string TypeName(const Key& key) {
  if (std::holds_alternative<int64_t TrainConfig::*>(key.field)) return "integer";
  if (std::holds_alternative<double TrainConfig::*>(key.field)) return "number";
  if (std::holds_alternative<bool TrainConfig::*>(key.field)) return "true|false";
  if (key.choices.empty()) return "text";
  return fmt::format("{}", fmt::join(key.choices, "|"));
}

std::string Wanted(const Key& key) {
  if (std::holds_alternative<bool TrainConfig::*>(key.field)) return "true or false";
  if (!key.choices.empty()) return fmt::format("one of {}", fmt::join(key.choices, ", "));
  if (std::holds_alternative<std::string TrainConfig::*>(key.field)) return "text";
  std::string wanted = std::holds_alternative<int64_t TrainConfig::*>(key.field) ? "an integer" : "a number";
  const NumberRange& range = key.range;
  if (!range.Limits()) return wanted;
  if (range.also) wanted += fmt::format(", {} or one", *range.also);
  if (std::isinf(range.max)) return wanted + fmt::format(" of at least {}", range.min);
  return wanted + fmt::format(" from {} to {}", range.min, range.max);
}

std::string ValueText(const Key& key, const TrainConfig& config) {
  return std::visit([&](auto field) { return fmt::format("{}", config.*field); }, key.field);
}

TrainConfig LoadTrainConfig(std::span<const std::string> arguments) {
  constexpr const char* kCommandLine = "command line";
  TrainConfig config;
  std::set<std::string_view> given;
  std::string recipe;
  for (const std::string& argument : arguments) {
    if (argument.find('=') != std::string::npos && !argument.starts_with("-")) continue;
    Require(ExitCode::kUsage, !argument.starts_with("-"),
            "{}: unknown option '{}'; keys are given as key=value, and `longspan train --help` lists them",
            kCommandLine, argument);
    Require(ExitCode::kUsage, recipe.empty(),
            "{}: two recipes, '{}' and '{}'; one at most, and keys are given as key=value", kCommandLine,
            recipe, argument);
    recipe = argument;
  }
  if (!recipe.empty()) ApplyRecipe(config, ReadRecipe(recipe), recipe, given);

  std::map<std::string, std::string> overrides;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = argument.substr(0, equals);
    const std::string value = argument.substr(equals + 1);
    const Key& key = RequireKey(name, kCommandLine);
    const auto [first, is_new] = overrides.try_emplace(name, value);
    Require(ExitCode::kUsage, is_new, "{}: key '{}' is repeated, with '{}' and '{}'", kCommandLine, name,
            Shortened(first->second, kMaxShownBytes), Shortened(value, kMaxShownBytes));
    SetKey(config, key, value, kCommandLine);
    given.insert(key.name);
  }

  for (const Key& key : RunKeys()) {
    if (!key.required || (given.contains(key.name) && !ValueText(key, config).empty())) continue;
    const std::string models =
        key.name == "model_path" ? fmt::format(" (built-in models: {})", fmt::join(BuiltinModelNames(), ", "))
                                 : "";
    throw Error(
        fmt::format("{0} is not given; add {0}=VALUE to the command line or {0}: VALUE to the recipe{1}",
                    key.name, models),
        ExitCode::kUsage);
  }
  return config;
}

std::string WriteRecipe(const TrainConfig& config) {
  std::string text;
  for (const Key& key : RunKeys()) {
    const std::string value = ValueText(key, config);
    const bool free_text =
        std::holds_alternative<std::string TrainConfig::*>(key.field) && key.choices.empty();
    text += fmt::format("{}: {}\n", key.name, free_text ? Quoted(value) : value);
  }
  return text;
}

}  // namespace longspan
