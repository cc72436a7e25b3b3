// Questions read back: what a careful reader of the prompt would answer is the right answer, and no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/check.h"
#include "eval/task.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::TemporaryDirectory;
using testing::WriteText;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Question Ask(const Task& task, int64_t units, double depth, int64_t choices = 5, uint64_t seed = 1) {
  Draws draws(seed, "test");
  return task.Ask(units, depth, choices, draws);
}

void ExpectDifferent(const std::vector<std::string>& answers, size_t count) {
  EXPECT_EQ(answers.size(), count);
  EXPECT_EQ(std::set<std::string>(answers.begin(), answers.end()).size(), answers.size());
}

// In turn every task, each with some file.
class EveryTask : public ::testing::Test {
 protected:
  std::unique_ptr<Task> Make(const TaskRow& row) {
    if (row.name == "key_value") return row.make(PairsFile(6, 12));
    if (row.name == "bible") return row.make(VersesFile(40));
    return row.make("");
  }
  std::string PairsFile(int records, int pairs) {
    std::string text;
    for (int r = 0; r < records; ++r) {
      nlohmann::json record = {{"key", fmt::format("k{}-{}", r, r)},
                               {"ordered_kv_records", nlohmann::json::array()}};
      for (int p = 0; p < pairs; ++p)
        record["ordered_kv_records"].push_back(
            {fmt::format("k{}-{}", r, p), fmt::format("v{}", 1000 + 31 * r + p)});
      text += record.dump() + "\n";
    }
    return WriteText(directory_ / "pairs.jsonl", text);
  }
  std::string VersesFile(int verses) {
    std::string text;
    for (int i = 1; i <= verses; ++i) text += fmt::format("Ge1:{} And verse {} said so.\n", i, i * i);
    return WriteText(directory_ / "verses.txt", text);
  }
  TemporaryDirectory directory_;
};

TEST_F(EveryTask, AsksTheSameOfTheSameSeed) {
  for (const TaskRow& row : TaskTable()) {
    const std::unique_ptr<Task> task = Make(row);
    const Question a = Ask(*task, 9, 0.5), b = Ask(*task, 9, 0.5), other = Ask(*task, 9, 0.5, 5, 2);
    EXPECT_EQ(a.prompt, b.prompt) << row.name;
    EXPECT_EQ(a.answers, b.answers) << row.name;
    EXPECT_NE(a.answers, other.answers) << row.name;
    ExpectDifferent(a.answers, 5);
    // More choices add to the wrong answers and leave the right one.
    EXPECT_EQ(Ask(*task, 9, 0.5, 2).answers.size(), 2u);
    EXPECT_GE(Ask(*task, task->min_units(), 0.0).answers.size(), 1u);
  }
}

TEST(Needle, StandsAtItsDepthOnce) {
  const std::unique_ptr<Task> task = MakeNeedle("");
  for (const double depth : {0.0, 0.25, 0.5, 1.0}) {
    const Question question = Ask(*task, 8, depth);
    const std::vector<std::string> lines = Lines(question.prompt);
    ASSERT_EQ(lines.size(), 1 + 8 + 1 + 1u);
    const std::string& needle = lines[1 + static_cast<size_t>(depth * 8)];
    ASSERT_TRUE(needle.starts_with("One of the special magic numbers for ")) << needle;
    const size_t colon = needle.find(" is:");
    EXPECT_EQ(needle.substr(colon + 4), question.answers[0] + ".");
    const std::string key = needle.substr(37, colon - 37);
    EXPECT_NE(lines.back().find("special magic number for " + key + " mentioned"), std::string::npos);
    EXPECT_TRUE(lines.back().ends_with("is"));
    for (size_t i = 0; i < question.answers.size(); ++i) {
      EXPECT_EQ(question.answers[i].size(), 8u);
      EXPECT_EQ(question.prompt.find(question.answers[i]) != std::string::npos, i == 0);
    }
  }
}

TEST(VariableTracking, TheStatementsGiveTheAnswer) {
  const std::unique_ptr<Task> task = MakeVariableTracking("");
  EXPECT_FALSE(task->has_depth());
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Question question = Ask(*task, 1 + static_cast<int64_t>(3 * seed), 0, 16, seed);
    std::map<std::string, std::string> value_of;
    std::map<std::string, std::vector<std::string>> variables_of;  // in the text's order
    for (const std::string& line : Lines(question.prompt)) {
      if (!line.starts_with("VAR ")) continue;
      const std::string name = line.substr(4, 5), right = line.substr(12);
      ASSERT_FALSE(value_of.contains(name));
      const std::string value = right.starts_with("VAR ") ? value_of.at(right.substr(4)) : right;
      value_of[name] = value;
      variables_of[value].push_back(name);
    }
    ASSERT_EQ(variables_of.size(), 4u);
    const std::string asked = question.prompt.substr(question.prompt.find("assigned the value ") + 19, 5);
    std::string want = " ";
    for (const std::string& name : variables_of.at(asked)) want += (want.size() > 1 ? ", " : "") + name;
    EXPECT_EQ(question.answers[0], want);
    ExpectDifferent(question.answers, 16);
    EXPECT_TRUE(question.prompt.ends_with(" 5 variables are assigned the value " + asked + ", they are:"));
  }
}

TEST_F(EveryTask, KeyValueAsksForWhatTheObjectHolds) {
  const std::unique_ptr<Task> task = MakeKeyValue(PairsFile(5, 7));
  EXPECT_EQ(task->max_units(), 35);
  for (const int64_t units : {1, 2, 7, 20, 35}) {
    for (const double depth : {0.0, 0.3, 1.0}) {
      for (uint64_t seed = 0; seed < 5; ++seed) {
        const Question question = Ask(*task, units, depth, 4, seed);
        const size_t open = question.prompt.find('{'), close = question.prompt.find('}');
        const auto object = nlohmann::ordered_json::parse(question.prompt.substr(open, close + 1 - open));
        ASSERT_EQ(object.size(), static_cast<size_t>(units));
        const size_t at = question.prompt.find("Key: \"") + 6;
        const std::string key = question.prompt.substr(at, question.prompt.find('"', at) - at);
        EXPECT_EQ(key.substr(1, key.find('-') - 1), key.substr(key.find('-') + 1));  // the file's choice
        EXPECT_EQ(question.answers[0], " " + object.at(key).dump());
        const auto place = std::distance(object.begin(), object.find(key));
        EXPECT_EQ(place, std::llround(depth * static_cast<double>(units - 1)));
        ExpectDifferent(question.answers, static_cast<size_t>(std::min<int64_t>(4, units)));
        for (const std::string& answer : question.answers)
          EXPECT_TRUE(
              std::ranges::any_of(object, [&](const auto& value) { return " " + value.dump() == answer; }));
      }
    }
  }
}

TEST_F(EveryTask, BibleAsksForTheVerseBehindAnAddress) {
  const std::unique_ptr<Task> task = MakeBible(VersesFile(30));
  for (const int64_t units : {1, 2, 11, 30}) {
    for (const double depth : {0.0, 0.5, 1.0}) {
      const Question question = Ask(*task, units, depth, 6, static_cast<uint64_t>(units));
      std::vector<std::string> lines = Lines(question.prompt);
      ASSERT_EQ(lines.size(), static_cast<size_t>(units) + 1);
      const std::string& found =
          lines[static_cast<size_t>(std::llround(depth * static_cast<double>(units - 1)))];
      EXPECT_EQ(found, lines.back() + question.answers[0]);
      ExpectDifferent(question.answers, static_cast<size_t>(std::min<int64_t>(6, units)));
      lines.pop_back();
      for (const std::string& answer : question.answers)
        EXPECT_TRUE(
            std::ranges::any_of(lines, [&](const std::string& line) { return line.ends_with(answer); }));
    }
  }
}

TEST_F(EveryTask, FilesThatAreNoneAreRefusedWithTheirLine) {
  const auto refuse = [&](auto make, const std::string& text, std::initializer_list<std::string_view> parts) {
    const std::string path = WriteText(directory_ / "bad", text);
    ExpectError(parts, [&] { make(path); });
  };
  refuse(MakeKeyValue, "\n", {"holds no records"});
  refuse(MakeKeyValue, "{}\n", {"bad:1: {} is no record"});
  refuse(MakeKeyValue, R"({"key": "a", "ordered_kv_records": [["b", "c"]]})",
         {"bad:1", "\"a\" is none of the pairs'"});
  refuse(MakeKeyValue, R"({"key": "a", "ordered_kv_records": [["a", "c"], ["a", "d"]]})",
         {"\"a\" was there before"});
  refuse(MakeKeyValue,
         "\n"
         R"({"key": "a", "ordered_kv_records": [["a"]]})",
         {"bad:2", "is no pair"});
  refuse(MakeKeyValue, "[", {"bad:1"});
  refuse(MakeBible, "  \n", {"holds no verse"});
  refuse(MakeBible, "Ge1:1 In\n\nnothing\n", {"bad:3: 'nothing' is no verse"});
  refuse(MakeBible, "Ge1:1 In\nGe1:1 the\n", {"bad:2: the address Ge1:1 was there before"});
  ExpectError(
      {"there is no task 'needel'; did you mean 'needle'?"}, [] { FindTask("needel"); }, ExitCode::kUsage);
}

TEST(Draws, DistinctNumbersAreAllEquallyLikely) {
  std::map<std::vector<int64_t>, int> counts;
  Draws draws(3, "distinct");
  for (int i = 0; i < 12000; ++i) ++counts[draws.Distinct(2, 4)];
  EXPECT_EQ(counts.size(), 12u);
  for (const auto& [numbers, count] : counts) {
    EXPECT_NE(numbers[0], numbers[1]);
    EXPECT_NEAR(count, 1000, 150);
  }
  EXPECT_TRUE(draws.Distinct(0, 0).empty());
}

}  // namespace
}  // namespace longspan
