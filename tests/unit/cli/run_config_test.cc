// The list of keys, and everything a person can get wrong in a recipe or on the command line.
#include "cli/run_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/help.h"
#include "core/check.h"
#include "core/file.h"
#include "parallel/strategy.h"

namespace longspan {
namespace {

using Arguments = std::vector<std::string>;

// A recipe in a file of its own, gone at the end of the test.
class Recipe {
 public:
  explicit Recipe(const std::string& text)
      : path_(testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name() +
              ".yml") {
    std::ofstream(path_) << text;
  }
  ~Recipe() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TrainConfig Load(Arguments arguments) {
  arguments.push_back("model_path=tiny");
  arguments.push_back("data_path=book.txt");
  return LoadTrainConfig(arguments);
}

// The message of the usage error that the call must end in.
std::string UsageError(const Arguments& arguments) {
  try {
    LoadTrainConfig(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

std::string RecipeError(const std::string& text) {
  const Recipe recipe(text);
  std::string message = UsageError({recipe.path()});
  EXPECT_TRUE(message.starts_with(recipe.path() + ":")) << message;
  return message.substr(std::min(message.size(), recipe.path().size()));
}

TEST(RunConfig, NoArgumentsAreTheDefaults) {
  TrainConfig expected;
  expected.model_path = "tiny";
  expected.data_path = {{"", "book.txt"}};
  EXPECT_EQ(WriteRecipe(Load({})), WriteRecipe(expected));
}

TEST(RunConfig, EveryFieldHasOneKey) {
  TrainConfig config;
  std::set<std::string_view> names;
  std::set<const void*> fields;
  size_t texts = 0, numbers = 0, flags = 0, maps = 0;
  const KeyList keys = TrainKeys(config);
  for (const Key& key : keys.keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_TRUE(fields.insert(std::visit([](auto* field) -> const void* { return field; }, key.field)).second)
        << key.name;
    EXPECT_FALSE(key.meaning.empty()) << key.name;
    texts += std::holds_alternative<std::string*>(key.field);
    numbers += std::holds_alternative<int64_t*>(key.field) || std::holds_alternative<double*>(key.field);
    flags += std::holds_alternative<bool*>(key.field);
    maps += std::holds_alternative<ValueMap*>(key.field);
  }
  // A field without a key changes the size of the struct but not this sum (flags are padded to 8 bytes each
  // group).
  const size_t listed = texts * sizeof(std::string) + maps * sizeof(ValueMap) + numbers * 8;
  EXPECT_LE(listed, sizeof(TrainConfig));
  EXPECT_GE(listed + flags * 8, sizeof(TrainConfig));
}

TEST(RunConfig, OverridesGoBeforeTheRecipe) {
  const Recipe recipe("steps: 7\nlearning_rate: 1e-4\nrun_name: \"a b\"\nenable_checkpointing: False\n");
  const TrainConfig config = Load({recipe.path(), "steps=9", "enable_data_shuffling=false"});
  EXPECT_EQ(config.steps, 9);
  EXPECT_EQ(config.learning_rate, 1e-4);
  EXPECT_EQ(config.run_name, "a b");
  EXPECT_FALSE(config.enable_checkpointing);
  EXPECT_FALSE(config.enable_data_shuffling);
}

TEST(RunConfig, AnEmptyRecipeAndEmptyTextAreFine) {
  const Recipe recipe("# nothing but a comment\n");
  EXPECT_EQ(Load({recipe.path(), "eval_data_path="}).eval_data_path, "");
  const Recipe null("run_name:\n");
  EXPECT_EQ(Load({null.path()}).run_name, "");
}

// A text of some choices may be unset again where it is by default, and only there.
TEST(RunConfig, AChoiceMayBeUnset) {
  EXPECT_EQ(Load({"context=offload"}).context, "offload");
  const Recipe recipe("context: remat\n");
  EXPECT_EQ(Load({recipe.path(), "context="}).context, "");
  EXPECT_NE(UsageError({"model_path=x", "data_path=x", "context=host"}).find("device, offload, remat"),
            std::string::npos);
  EXPECT_NE(UsageError({"model_path=x", "data_path=x", "dtype="}).find("float32, bfloat16"),
            std::string::npos);
}

TEST(RunConfig, ValuesMayHoldEqualsSigns) { EXPECT_EQ(Load({"run_name=a=b"}).run_name, "a=b"); }

// Another value than the default for every key, awkward ones where there are any.
struct ChangeValue {
  const Key& key;
  int n;
  void operator()(int64_t* field) const { *field = n + 4; }
  void operator()(double* field) const { *field = std::nextafter(0.1 + 0.001 * n, 1.0); }
  void operator()(bool* field) const { *field = !*field; }
  void operator()(std::string* field) const { *field = Text(*field); }
  void operator()(ValueMap* field) const { *field = {{"a", Text("")}, {"~ \"b\": {", Text(Text(""))}}; }
  std::string Text(const std::string& current) const {
    if (key.choices.empty()) return fmt::format("~ # '{}': \"ü\\x\"\t{}", key.name, n);
    return std::string(key.choices.back() == current ? key.choices.front() : key.choices.back());
  }
};

TEST(RunConfig, WhatIsWrittenReadsBack) {
  TrainConfig config, defaults;
  const KeyList keys = TrainKeys(config), default_keys = TrainKeys(defaults);
  int n = 0;
  for (const Key& key : keys.keys()) std::visit(ChangeValue{key, ++n}, key.field);
  config.max_shard_bytes = (int64_t{1} << 53) - 1;
  const Recipe recipe(WriteRecipe(config));
  TrainConfig back = LoadTrainConfig(Arguments{recipe.path()});
  const KeyList keys_back = TrainKeys(back);
  for (size_t i = 0; i < keys.keys().size(); ++i) {
    EXPECT_EQ(ValueText(keys_back.keys()[i]), ValueText(keys.keys()[i]));
    EXPECT_NE(ValueText(keys.keys()[i]), ValueText(default_keys.keys()[i])) << keys.keys()[i].name;
  }
  EXPECT_EQ(WriteRecipe(back), WriteRecipe(config));
}

TEST(RunConfig, TextThatLooksLikeNullReadsBack) {
  for (const char* text : {"", "~", "null", "true", "1", "- x", "a: b", "#", "line\nbreak"}) {
    TrainConfig config;
    config.model_path = "x";
    config.data_path = {{"", "x"}};
    config.run_name = text;
    const Recipe recipe(WriteRecipe(config));
    EXPECT_EQ(LoadTrainConfig(Arguments{recipe.path()}).run_name, text);
  }
}

TEST(RunConfig, UnknownKeys) {
  EXPECT_EQ(UsageError({"max_target_lenght=8"}),
            "command line: unknown key 'max_target_lenght'; did you mean 'max_target_length'?");
  EXPECT_EQ(UsageError({"qqq=8"}), "command line: unknown key 'qqq'; `longspan train --help` lists them");
  EXPECT_EQ(UsageError({"=8"}), "command line: unknown key ''; `longspan train --help` lists them");
  EXPECT_EQ(RecipeError("steps: 1\nlearning_rat: 1\n"),
            ":2: unknown key 'learning_rat'; did you mean 'learning_rate'?");
  // A value that is never read must not hide a bad one.
  EXPECT_EQ(RecipeError("Steps: 1\n"), ":1: unknown key 'Steps'; did you mean 'steps'?");
}

TEST(RunConfig, KeysInTheWrongPlace) {
  EXPECT_EQ(RecipeError("train:\n  # by how much\n  steps: 1\n"),
            ":3: key 'steps' stands inside 'train'; a recipe is one flat map, so move it to the top level");
  EXPECT_EQ(RecipeError("trian:\n  x: 1\n"), ":1: unknown key 'trian'; `longspan train --help` lists them");
  EXPECT_EQ(RecipeError("steps:\n  learning_rate: 1\n"),
            ":1: steps wants an integer from 1 to 1099511627776, got a map");
  EXPECT_EQ(RecipeError("eval_data_path: [a, b]\n"), ":1: eval_data_path wants text, got a list");
  EXPECT_EQ(RecipeError("[a]: 1\n"), ":1: a key is a plain word, got a map, a list or nothing");
}

TEST(RunConfig, WrongTypes) {
  EXPECT_EQ(UsageError({"steps=ten"}),
            "command line: steps wants an integer from 1 to 1099511627776, got 'ten'");
  for (const char* text : {"1.5", "", " 1", "1 ", "0x10", "1e3", "99999999999999999999", "1_000"})
    EXPECT_EQ(UsageError({fmt::format("steps={}", text)}),
              fmt::format("command line: steps wants an integer from 1 to 1099511627776, got '{}'", text));
  for (const char* text : {"nan", "NaN", "-nan", "inf", "-inf", "1e999", "1,5", "fast", "", "0x1p3"})
    EXPECT_EQ(UsageError({fmt::format("learning_rate={}", text)}),
              fmt::format("command line: learning_rate wants a number from 0 to 1000000, got '{}'", text));
  for (const char* text : {"yes", "1", "on", "", "tRUE"})
    EXPECT_EQ(UsageError({fmt::format("enable_checkpointing={}", text)}),
              fmt::format("command line: enable_checkpointing wants true or false, got '{}'", text));
  EXPECT_EQ(RecipeError("learning_rate: .nan\n"),
            ":1: learning_rate wants a number from 0 to 1000000, got '.nan'");
  EXPECT_EQ(RecipeError("\nsteps:\n"), ":2: steps wants an integer from 1 to 1099511627776, got ''");
}

TEST(RunConfig, OutOfRange) {
  EXPECT_EQ(UsageError({"max_target_length=0"}),
            "command line: max_target_length wants an integer from 1 to 2147483648, got '0'");
  EXPECT_EQ(UsageError({"ranks=0"}), "command line: ranks wants an integer from 1 to 65536, got '0'");
  EXPECT_EQ(UsageError({"ranks=65537"}).substr(0, 25), "command line: ranks wants");
  EXPECT_EQ(UsageError({"adam_b1=1"}), "command line: adam_b1 wants a number from 0 to 0.999999, got '1'");
  EXPECT_EQ(UsageError({"adam_eps=0"}),
            "command line: adam_eps wants a number from 1e-30 to 1000000, got '0'");
  EXPECT_EQ(UsageError({"eval_interval=0"}),
            "command line: eval_interval wants an integer, -1 or one from 1 to 1099511627776, got '0'");
  UsageError({"eval_interval=-2"});
  UsageError({"warmup_steps_fraction=1.0000001"});
  EXPECT_EQ(Load({"warmup_steps_fraction=1"}).warmup_steps_fraction, 1);
  EXPECT_EQ(Load({"eval_interval=-1"}).eval_interval, -1);
  EXPECT_EQ(Load({"adam_b1=0"}).adam_b1, 0);
}

// The ends of the ranges are where sums of sizes overflow, and floats become 0 or infinite.
TEST(RunConfig, NumbersStayWhereArithmeticHolds) {
  for (const char* text : {"max_target_length=9223372036854775807", "stripe_length=2147483649",
                           "global_batch_size=2147483649", "steps=1099511627777", "adam_eps=1e-46",
                           "learning_rate=1e39", "adam_b2=0.9999999999", "peak_tflops=1e-300"})
    EXPECT_NE(UsageError({text}).find(" wants a"), std::string::npos) << text;
  EXPECT_EQ(Load({"max_target_length=2147483648"}).max_target_length, int64_t{1} << 31);
  EXPECT_EQ(Load({"adam_eps=1e-30"}).adam_eps, 1e-30);
  EXPECT_EQ(Load({"peak_tflops=0"}).peak_tflops, 0);
}

TEST(RunConfig, TextIsEmptyOnlyWhereThatMeansSomething) {
  EXPECT_EQ(UsageError({"resume="}),
            "command line: resume wants text, got none; leave the key out for 'none'");
  EXPECT_EQ(RecipeError("base_output_directory:\n"),
            ":1: base_output_directory wants text, got none; leave the key out for 'runs'");
  EXPECT_EQ(Load({"run_name=", "eval_data_path="}).run_name, "");
}

TEST(RunConfig, WhatIsGivenIsShownShortened) {
  const std::string x(1000, 'x'), shown(200, 'x');
  EXPECT_TRUE(UsageError({"steps=" + x}).ends_with("got '" + shown + "…'"));
  EXPECT_NE(UsageError({x + "=1"}).find("unknown key '" + shown + "…'"), std::string::npos);
  EXPECT_TRUE(UsageError({"run_name=" + x, "run_name=" + x}).ends_with("…' and '" + shown + "…'"));
}

TEST(RunConfig, UnknownChoices) {
  EXPECT_EQ(UsageError({"dtype=float"}),
            "command line: dtype wants one of float32, bfloat16, got 'float'; did you mean 'float32'?");
  EXPECT_EQ(UsageError({"dtype=half"}), "command line: dtype wants one of float32, bfloat16, got 'half'");
  EXPECT_EQ(UsageError({"context_parallel_strategy="}).substr(0, 56),
            "command line: context_parallel_strategy wants one of all");
  for (const StrategyRow& row : StrategyTable()) {
    const std::string name(row.name);
    EXPECT_EQ(Load({"context_parallel_strategy=" + name}).context_parallel_strategy,
              (std::map<std::string, std::string>{{"", name}}));
  }
}

TEST(RunConfig, RepeatedKeys) {
  EXPECT_EQ(RecipeError("steps: 1\nranks: 2\nsteps: 1\n"),
            ":3: key 'steps' is repeated; it stands on line 1 already");
  EXPECT_EQ(UsageError({"steps=1", "ranks=1", "steps=2"}),
            "command line: key 'steps' is repeated, with '1' and '2'");
}

TEST(RunConfig, NotARecipe) {
  EXPECT_EQ(UsageError({"nowhere.yml"}),
            "recipe 'nowhere.yml' isn't there; give the path of a YAML file, or key=value");
  EXPECT_EQ(UsageError({"steps", "10"}),
            "command line: two recipes, 'steps' and '10'; one at most, and keys are given as key=value");
  EXPECT_EQ(UsageError({"steps"}), "recipe 'steps' isn't there; a key is set as steps=VALUE");
  EXPECT_EQ(UsageError({"/"}), "recipe '/' is no file");
  EXPECT_EQ(UsageError({"--steps=10"}),
            "command line: unknown option '--steps=10'; keys are given as key=value, and `longspan train "
            "--help` lists them");
  EXPECT_EQ(RecipeError("steps: 1\nranks: a: b\n"), ":2: not YAML: illegal map value");
  EXPECT_EQ(RecipeError("just words\n"), ":1: a recipe is a map of `key: value` lines, got a single value");
  EXPECT_EQ(RecipeError("- steps\n"), ":1: a recipe is a map of `key: value` lines, got a list");
  EXPECT_EQ(RecipeError("steps: 1\n---\nsteps: 2\n"), ": a recipe is one YAML document, got more");
  EXPECT_EQ(RecipeError(",ne xt\n"), ": a recipe is one YAML document, got more");
  EXPECT_EQ(RecipeError(std::string((16 << 20) + 1, '#')), ": a recipe has at most 16777216 bytes, got 16777217");
}

TEST(RunConfig, RequiredKeys) {
  EXPECT_EQ(
      UsageError({"model_path=tiny"}),
      "data_path is not given; add data_path=VALUE to the command line or data_path: VALUE to the recipe");
  EXPECT_NE(UsageError({"data_path=x"}).find("model_path is not given"), std::string::npos);
  EXPECT_NE(UsageError({"data_path=x", "model_path="}).find("built-in models: "), std::string::npos);
}

TEST(Help, NamesEveryKeyAndStrategy) {
  const std::string help = TrainHelp(), reference = KeyReference();
  TrainConfig defaults;
  const KeyList keys = TrainKeys(defaults);
  for (const Key& key : keys.keys()) {
    EXPECT_NE(help.find(fmt::format("\n  {}={}", key.name, TypeName(key))), std::string::npos) << key.name;
    EXPECT_NE(reference.find(fmt::format("| `{}` |", key.name)), std::string::npos) << key.name;
  }
  for (const StrategyRow& row : StrategyTable())
    EXPECT_NE(help.find(row.summary), std::string::npos) << row.name;
}

TEST(Help, TheReferenceIsUpToDate) {
  EXPECT_EQ(ReadTextFile(LONGSPAN_SOURCE_DIR "/docs/reference/keys.md"), KeyReference())
      << "write it anew: longspan train --help=markdown > docs/reference/keys.md";
}

}  // namespace
}  // namespace longspan
