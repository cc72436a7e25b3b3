// `longspan eval` as a person runs it.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "data/tokenizer.h"
#include "support/expect_error.h"
#include "support/program.h"
#include "support/runs.h"
#include "support/tiny.h"
#include "support/tiny_tokenizer.h"

namespace longspan {
namespace {

using namespace testing;

class EvalCommandTest : public ::testing::Test {
 protected:
  EvalCommandTest() {
    ModelConfig config = TinyConfig();
    config.vocab_size = 256;  // bytes
    WriteModel(directory_ / "model", config, 3);
    std::string text;
    for (int i = 1; i <= 60; ++i)
      text += fmt::format("Ge1:{} And {} said: let there be {}.\n", i, i * i, 7 * i);
    WriteText(directory_ / "book.txt", text);
  }
  ProgramResult Eval(const std::string& arguments) const {
    return RunProgram(fmt::format("eval model_path={} dtype=float32 {}", directory_ / "model", arguments));
  }
  nlohmann::json Json(const std::string& arguments) const {
    const ProgramResult result = Eval(arguments + " --format json");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return nlohmann::json::parse(result.output);
  }
  // Exits with `code` and one line that has all of `parts`.
  void ExpectFailure(const std::string& arguments, int code,
                     std::initializer_list<std::string_view> parts) const {
    const ProgramResult result = Eval(arguments);
    EXPECT_EQ(result.exit_code, code) << result.output;
    for (const std::string_view part : parts)
      EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  }
  std::string Book() const { return "data_path=" + directory_ / "book.txt"; }

  const TemporaryDirectory directory_;
};

TEST_F(EvalCommandTest, LossIsThatOfTraining) {
  const nlohmann::json one = Json(Book() + " max_target_length=500");
  const nlohmann::json ring = Json(Book() + " max_target_length=500 ranks=3 context_parallel_layout=striped");
  EXPECT_EQ(one["task"], "loss");
  EXPECT_EQ(one["tokens"], ring["tokens"]);
  EXPECT_NEAR(one["loss"].get<double>(), ring["loss"].get<double>(), 1e-5);
  EXPECT_NEAR(one["perplexity"].get<double>(), std::exp(one["loss"].get<double>()), 1e-6);
  int64_t targets = 0;
  double loss = 0;
  for (const auto& bucket : one["buckets"]) {
    targets += bucket["targets"].get<int64_t>();
    loss += bucket["loss"].get<double>() * bucket["targets"].get<double>();
  }
  EXPECT_EQ(one["targets"], targets);
  EXPECT_NEAR(one["loss"].get<double>(), loss / static_cast<double>(targets), 1e-9);

  // A context that is extended beforehand.
  const nlohmann::json extended =
      Json(Book() + " max_target_length=500 rope_scaling='{rope_type: linear, factor: 4}'");
  EXPECT_EQ(extended["tokens"], one["tokens"]);
  EXPECT_GT(std::abs(extended["loss"].get<double>() - one["loss"].get<double>()), 1e-4);

  // A step of one sequence without learning says the loss of that sequence.
  const nlohmann::json first = Json(Book() + " max_target_length=500 eval_steps=1");
  const std::string run = directory_ / "runs/step";
  const ProgramResult train =
      RunProgram(fmt::format("train model_path={} {} dtype=float32 max_target_length=500 steps=1 "
                             "learning_rate=0 enable_checkpointing=false enable_data_shuffling=false "
                             "base_output_directory={} run_name=step",
                             directory_ / "model", Book(), directory_ / "runs"));
  ASSERT_EQ(train.exit_code, 0) << train.output;
  EXPECT_NEAR(first["loss"].get<double>(), ReadMetrics(run)[0]["loss"].get<double>(), 1e-6);
}

// A token file is evaluated as the documents that it was made of, and what its mask leaves out is no target.
TEST_F(EvalCommandTest, TokenFiles) {
  const std::string tokenizer = WriteText(directory_ / "tokenizer.json", kTinyTokenizer);
  std::string lines;
  int64_t num_targets = 0;
  for (int i = 0; i < 20; ++i) {
    std::string text;
    std::vector<int> ids, mask;
    for (int k = 0; k < 10 + i; ++k) {
      text += static_cast<char>('a' + (i + k * k) % 8);
      ids.push_back((i * k + k) % 12);
      mask.push_back(k >= i);
      num_targets += i % 2 == 1 && k > 0 && k >= i;
    }
    lines += (i % 2 == 0 ? nlohmann::json{{"text", text}}
                         : nlohmann::json{{"input_ids", ids}, {"loss_mask", mask}})
                 .dump() +
             "\n";
    if (i % 2 == 0) num_targets += static_cast<int64_t>(OpenTokenizer(tokenizer)->Encode(text).size());
  }
  WriteText(directory_ / "d.jsonl", lines);
  const ProgramResult written = RunProgram(fmt::format(
      "tokenize data_path={0}/d.jsonl tokenizer_path={1} output={0}/d.tokens", directory_.path(), tokenizer));
  ASSERT_EQ(written.exit_code, 0) << written.output;
  const std::string rest = " max_target_length=64 tokenizer_path=" + tokenizer;
  const std::string file = "data_path=" + directory_ / "d.tokens" + rest;
  const nlohmann::json made_of = Json("data_path=" + directory_ / "d.jsonl" + rest), made = Json(file);
  EXPECT_EQ(made["targets"], num_targets);  // each text's first token is a target, behind the BOS
  for (const char* key : {"tokens", "targets", "loss", "buckets"}) EXPECT_EQ(made[key], made_of[key]) << key;
  const nlohmann::json ring = Json(file + " ranks=2");
  EXPECT_EQ(ring["targets"], made["targets"]);
  EXPECT_NEAR(ring["loss"].get<double>(), made["loss"].get<double>(), 1e-5);

  std::string damaged = ReadTextFile(directory_ / "d.tokens");
  damaged[40] = static_cast<char>(damaged[40] ^ 1);
  WriteText(directory_ / "damaged.tokens", damaged);
  ExpectFailure("data_path=" + directory_ / "damaged.tokens" + rest, 3,
                {"damaged.tokens is no whole token file", "bytes at 32 are damaged"});
  std::string other = kTinyTokenizer;
  other.replace(other.find("\u00e9"), 2, "\u00e8");
  WriteText(tokenizer, other);
  ExpectFailure(file, 3, {"d.tokens was made with another tokenizer than the model's"});
}

TEST_F(EvalCommandTest, TableAndPage) {
  const std::string page = directory_ / "loss.html";
  const ProgramResult result = Eval(Book() + " max_target_length=300 html=" + page);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  for (const std::string_view part : {"tokens of context", "perplexity", "257-300", "all", "tokens/s"})
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  const std::string html = ReadTextFile(page);
  for (const std::string_view part :
       {"<!doctype html>", "<svg", "tokens of context (logarithmic)", "257–300"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  EXPECT_EQ(html.find("http"), std::string::npos);  // nothing from elsewhere
}

TEST_F(EvalCommandTest, RetrievalTasks) {
  const std::string pairs = WriteText(
      directory_ / "pairs.jsonl",
      R"({"ordered_kv_records": [["a1", "b7"], ["a2", "b8"], ["a3", "b9"], ["a4", "b6"], ["a5", "b5"]], "key": "a2"})");
  const std::string tasks[] = {"task=needle", "task=variable_tracking", "task=key_value task_path=" + pairs,
                               "task=bible task_path=" + directory_ / "book.txt"};
  for (const std::string& task : tasks) {
    const bool has_depth = task != tasks[1];
    const std::string lengths = task == tasks[2] ? "150,170" : task == tasks[1] ? "1200,1500" : "550,900";
    const std::string arguments = task + " task_samples=2 task_choices=4 task_lengths=" + lengths +
                                  (has_depth ? " task_depths=0,100" : "");
    const nlohmann::json json = Json(arguments);
    EXPECT_EQ(json["cells"].size(), has_depth ? 4u : 2u) << json.dump();
    EXPECT_EQ(json["cases"], has_depth ? 8 : 4);
    EXPECT_GE(json["chance"].get<double>(), 0.25);
    EXPECT_LT(json["log_probability"].get<double>(), 0);
    EXPECT_EQ(json["greedy_accuracy"], 0);  // of random weights
    const nlohmann::json ulysses = Json(arguments + " ranks=2 context_parallel_strategy=ulysses");
    EXPECT_NEAR(json["log_probability"].get<double>(), ulysses["log_probability"].get<double>(), 1e-3);
    EXPECT_EQ(json["accuracy"], ulysses["accuracy"]);
    const std::string page = directory_ / "page.html";
    const ProgramResult table = Eval(arguments + " html=" + page);
    EXPECT_EQ(table.exit_code, 0);
    EXPECT_NE(table.output.find(has_depth ? "100 %" : "all"), std::string::npos) << table.output;
    EXPECT_NE(ReadTextFile(page).find("<table>"), std::string::npos);
  }
}

TEST_F(EvalCommandTest, CompressedTaskFiles) {
  const std::string book = directory_ / "book.txt";
  ASSERT_EQ(RunShell("gzip -k " + book).exit_code, 0);
  const std::string task = " task=bible task_samples=1 task_lengths=300 task_path=" + book;
  EXPECT_EQ(Json(task + ".gz")["log_probability"], Json(task)["log_probability"]);
}

TEST_F(EvalCommandTest, WhatDoesNotFitTogetherIsRefused) {
  ExpectFailure("", 2, {"data_path is not set"});
  ExpectFailure("task=needel", 2, {"task wants one of", "did you mean 'needle'"});
  ExpectFailure("task=needle data_path=x", 2, {"data_path is 'x', which task=needle does not use"});
  ExpectFailure("task=key_value", 2, {"task=key_value needs task_path"});
  ExpectFailure("task=needle task_path=x", 2, {"task_path is 'x', which task=needle does not use"});
  ExpectFailure(Book() + " task_depths=1", 2, {"task_depths is '1', which task=loss does not use"});
  ExpectFailure("task=variable_tracking task_depths=50", 2,
                {"task_depths is '50'", "spread over the whole text"});
  ExpectFailure("task=needle task_lengths=400,x", 2, {"task_lengths wants numbers from 1", "'400,x'"});
  ExpectFailure("task=needle task_lengths=400.5", 2, {"task_lengths wants whole numbers"});
  ExpectFailure("task=needle task_lengths=400,300", 2, {"ascending"});
  ExpectFailure("task=needle task_depths=0,101", 2, {"task_depths wants numbers from 0 to 100"});
  ExpectFailure("task=needle task_lengths=10", 3,
                {"a case of 10 tokens has no room for the shortest question"});
  ExpectFailure("task=bible task_lengths=90000 task_path=" + directory_ / "book.txt", 3,
                {"the task's file makes a text of", "90000 are asked for"});
  ExpectFailure("task=needle attention_mask=full", 2, {"several answers to one text", "attention_mask=full"});
  ExpectFailure("task=bible task_path=" + directory_ / "none", 3, {"none"});
  const ProgramResult builtin = RunProgram("eval model_path=tiny " + Book());
  EXPECT_EQ(builtin.exit_code, 2);
  EXPECT_NE(builtin.output.find("built-in model, which has no weights"), std::string::npos) << builtin.output;
  const ProgramResult help = RunProgram("eval --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.output.find("variable_tracking"), std::string::npos);
}

}  // namespace
}  // namespace longspan
