// Lists of keys beyond what training's has: values by name, options, a positional argument, borrowed keys.
#include "cli/keys.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/check.h"

namespace longspan {
namespace {

struct Config {
  ValueMap weights, strategy = {{"", "ring"}};
  std::string path, format = "table";
  int64_t count = 1;
};

KeyList Keys(Config& config) {
  KeyList keys;
  keys.Group("All");
  keys.Add("path", &config.path, "What to read.").required = true;
  keys.Add("weights", &config.weights, "How much of each.");
  keys.Add("strategy", &config.strategy, "How.", {}, {"ring", "ulysses"});
  keys.Add("count", &config.count, "How many.", AtLeast(1));
  keys.Add("format", &config.format, "How to print.", {}, {"table", "json"}).is_option = true;
  return keys;
}

Config Load(std::vector<std::string> arguments, std::string_view positional = {}) {
  Config config;
  if (positional.empty()) arguments.push_back("path=x");
  LoadKeys("count", Keys(config), arguments, positional);
  return config;
}

void ExpectUsageError(const std::vector<std::string>& arguments, const std::string& message,
                      std::string_view positional = {}) {
  try {
    Load(arguments, positional);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_EQ(error.what(), message);
  }
}

std::string RecipeFile(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/keys_test.yml";
  std::ofstream(path) << text;
  return path;
}

TEST(Keys, AMapGivesAValueToEachName) {
  const ValueMap wanted = {{"books", "0.7"}, {"my code", "0.3"}};
  EXPECT_EQ(Load({"weights={books: 0.7, 'my code': 0.3}"}).weights, wanted);
  EXPECT_EQ(Load({RecipeFile("weights: {books: 0.7, my code: 0.3}\n")}).weights, wanted);
  EXPECT_EQ(Load({RecipeFile("weights:\n  books: 0.7\n  my code: 0.3\n")}).weights, wanted);
  EXPECT_EQ(Load({"weights=books"}).weights, (ValueMap{{"", "books"}}));
  EXPECT_EQ(Load({"weights="}).weights, ValueMap{});
  EXPECT_EQ(Load({"strategy={a: ulysses}"}).strategy, (ValueMap{{"a", "ulysses"}}));
}

TEST(Keys, NumbersInAMapAreWrittenInTheirOrder) {
  Config config;
  config.weights = {{"128", "0.3"}, {"60.2", "0.2"}, {"nan", "1"}, {"b", "2"}, {"9", "0.1"}};
  const std::string text = WriteRecipe(Keys(config));
  EXPECT_NE(text.find(R"(weights: {"9": "0.1", "60.2": "0.2", "128": "0.3", "b": "2", "nan": "1"})"),
            text.npos)
      << text;
}

TEST(Keys, ChangesAreWrittenBelowTheirGroups) {
  Config config;
  const KeyList keys = Keys(config);
  EXPECT_EQ(WriteChanges(keys), "");
  config.weights = {{"9", "0.1"}};
  const std::string text = WriteChanges(keys);
  EXPECT_EQ(text.rfind("\n# ", 0), 0u) << text;
  EXPECT_EQ(text.substr(text.find('\n', 1)), "\nweights: {\"9\": \"0.1\"}\n");
}

TEST(Keys, BadMaps) {
  ExpectUsageError({"strategy={a: rnig}"},
                   "command line: strategy wants one of ring, ulysses, or a map {name: value, …} to it, got "
                   "'rnig'; did you mean 'ring'?");
  ExpectUsageError(
      {"strategy="},
      "command line: strategy wants one of ring, ulysses, or a map {name: value, …} to it, got ''");
  ExpectUsageError({"weights={a: 1, a: 2}"}, "command line: 'a' is repeated in weights");
  ExpectUsageError({"weights={}"},
                   "command line: weights wants text, or a map {name: value, …} to it, got an empty map");
  ExpectUsageError(
      {"weights={a: {b: 1}}"},
      "command line: weights wants text, or a map {name: value, …} to it, got a map in which not "
      "all names and values are plain words");
  ExpectUsageError({"weights={'': 1}"}, "command line: weights has an entry without a name");
  ExpectUsageError({"path={a: 1}", "path=b"}, "command line: key 'path' is repeated, with '{a: 1}' and 'b'");
  try {
    Load({"weights={a: 1"});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'{a: 1', which is no YAML map: "), std::string::npos)
        << error.what();
  }
}

TEST(Keys, AMapReadsBackAsItWasWritten) {
  Config config, back;
  config.path = "x";
  config.weights = {{"a: b", "#1"}, {"c", "{"}};
  LoadKeys("count", Keys(back), std::vector<std::string>{RecipeFile(WriteRecipe(Keys(config)))});
  EXPECT_EQ(back.weights, config.weights);
  EXPECT_EQ(back.strategy, config.strategy);
}

// yaml-cpp would write them as U+FFFD, and config.yml would say another thing than was given.
TEST(Keys, WhatIsNoTextIsRefused) {
  for (const std::string bad : {"a\xF5", "\xC3", "a\xED\xA0\x80", "a\uFFFF", "a\uFDD0", "a\U0001FFFE"}) {
    for (const std::string& argument : {"path=" + bad, "weights={" + bad + ": 1}", "weights={b: " + bad + "}",
                                        RecipeFile("weights: " + bad + "\n")}) {
      try {
        Config config;
        LoadKeys("count", Keys(config), std::vector<std::string>{argument});
        ADD_FAILURE() << "accepted: " << argument;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kUsage);
        EXPECT_NE(std::string(error.what()).find("is not UTF-8 text at byte "), std::string::npos)
            << error.what();
      }
    }
  }
  Config config, back;
  config.path = "\u00e9\u4e2d\U0001f600\uFFFD\uFDCF";
  LoadKeys("count", Keys(back), std::vector<std::string>{RecipeFile(WriteRecipe(Keys(config)))});
  EXPECT_EQ(back.path, config.path);
}

TEST(Keys, OptionsStandApart) {
  EXPECT_EQ(Load({"--format", "json", "count=2"}).format, "json");
  EXPECT_EQ(Load({"--format=json"}).format, "json");
  ExpectUsageError({"--format", "xml"}, "command line: format wants one of table, json, got 'xml'");
  ExpectUsageError({"path=x", "--format"}, "command line: --format wants a value: one of table, json",
                   "path");
  ExpectUsageError({"format=json"}, "command line: format is an option; give it as --format VALUE");
  ExpectUsageError({"--count", "2"},
                   "command line: unknown option '--count'; keys are given as key=value, and `longspan count "
                   "--help` lists them");
  Config config;
  EXPECT_EQ(WriteRecipe(Keys(config)).find("format"), std::string::npos);
}

TEST(Keys, APositionalArgumentIsItsKeysValue) {
  EXPECT_EQ(Load({"a/b", "count=3"}, "path").path, "a/b");
  EXPECT_EQ(Load({"path=a/b"}, "path").path, "a/b");
  ExpectUsageError(
      {"a", "b"},
      "command line: two values for path, 'a' and 'b'; one at most, and keys are given as key=value", "path");
  ExpectUsageError({"a", "path=b"}, "command line: key 'path' is repeated, with 'a' and 'b'", "path");
}

TEST(Keys, ListsBorrowFromEachOther) {
  Config theirs;
  const KeyList all = Keys(theirs);
  KeyList some;
  constexpr std::string_view kNames[] = {"count", "path"};
  some.AddFrom(all, kNames);
  ASSERT_EQ(some.keys().size(), 2U);
  LoadKeys("count", some, std::vector<std::string>{"count=5", "path=y"});
  EXPECT_EQ(theirs.count, 5);
  EXPECT_EQ(theirs.path, "y");
}

}  // namespace
}  // namespace longspan
