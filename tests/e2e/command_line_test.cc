// The program as a person meets it: what it says of itself, and what it says of bad input. Whatever is
// refused leaves the disk as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/program.h"
#include "support/tiny_tokenizer.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::RunProgram;
using testing::RunShell;

// Every file below a directory with its contents, every link with its target.
std::map<std::string, std::string> Snapshot(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    std::string& content = files[entry.path().string()];
    if (entry.is_symlink()) content = fs::read_symlink(entry.path()).string();
    if (entry.is_regular_file() && !entry.is_symlink()) content = ReadTextFile(entry.path().string());
  }
  return files;
}

class CommandLine : public ::testing::Test {
 protected:
  CommandLine() {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 200; ++i) text << "line " << i * i << " of the text\n";
  }

  // The words that make a quick run in this test's directory.
  std::string Quick() const {
    return fmt::format(
        "model_path=tiny data_path={0}/text.txt base_output_directory={0}/runs run_name=a "
        "max_target_length=64 steps=1 threads_per_rank=1 peak_tflops=1 ",
        directory_.path());
  }

  // Runs it and expects this exit code, one line of error that holds every fragment, and an untouched disk.
  void ExpectRefused(const std::string& arguments, int exit_code, const std::vector<std::string>& fragments) {
    const auto before = Snapshot(directory_.path());
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << arguments << "\n" << result.output;
    const size_t error = result.output.find("longspan: error: ");
    ASSERT_NE(error, std::string::npos) << arguments << "\n" << result.output;
    EXPECT_EQ(result.output.find('\n', error), result.output.size() - 1) << result.output;
    for (const std::string& fragment : fragments)
      EXPECT_NE(result.output.find(fragment, error), std::string::npos) << "no " << fragment << " in\n"
                                                                        << result.output;
    EXPECT_TRUE(Snapshot(directory_.path()) == before) << arguments << " changed the disk";
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(CommandLine, SaysWhatItIs) {
  const ProgramResult version = RunProgram("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.output.starts_with("longspan ")) << version.output;

  const ProgramResult help = RunProgram("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.output.find("longspan train [RECIPE.yml] [key=value ...]"), std::string::npos)
      << help.output;
  EXPECT_EQ(RunProgram("help").output, help.output);

  const ProgramResult train = RunProgram("train --help");
  EXPECT_EQ(train.exit_code, 0);
  EXPECT_NE(train.output.find("context_parallel_strategy=all_gather|ring|ulysses|usp"), std::string::npos);
  EXPECT_EQ(RunProgram("train --help=markdown").output,
            ReadTextFile(LONGSPAN_SOURCE_DIR "/docs/reference/keys.md"));
}

TEST_F(CommandLine, Commands) {
  ExpectRefused("", 2, {"no command given"});
  ExpectRefused("trian", 2, {"unknown command 'trian'; did you mean 'train'?"});
  ExpectRefused("train --fast " + Quick(), 2, {"unknown option '--fast'"});
}

TEST_F(CommandLine, Recipes) {
  ExpectRefused("train nowhere.yml", 2, {"recipe 'nowhere.yml' isn't there"});
  std::ofstream(directory_ / "bad.yml") << "steps: 1\nsteps: 2\n";
  ExpectRefused("train " + (directory_ / "bad.yml"), 2, {"bad.yml:2: key 'steps' is repeated"});
}

TEST_F(CommandLine, Values) {
  ExpectRefused("train step=3 " + Quick(), 2, {"unknown key 'step'; did you mean 'steps'?"});
  ExpectRefused("train steps=3 " + Quick(), 2, {"key 'steps' is repeated"});
  ExpectRefused("train learning_rate=nan " + Quick(), 2,
                {"learning_rate wants a number from 0 to 1000000, got 'nan'"});
  ExpectRefused("train model_path=tiny data_path=x max_target_length=0", 2,
                {"max_target_length wants an integer from 1 to 2147483648, got '0'"});
}

TEST_F(CommandLine, HeadsFewerThanTheUlyssesDegree) {
  ExpectRefused("train ranks=8 context_parallel_strategy=ulysses " + Quick(), 2,
                {"ulysses_parallelism", "8", "num_attention_heads 4", "largest that works is 4"});
}

TEST_F(CommandLine, ModelsAndTexts) {
  const std::string rest = " base_output_directory=" + (directory_ / "runs") + " max_target_length=64";
  ExpectRefused("train model_path=tiny data_path=" + (directory_ / "nothing.txt") + rest, 3,
                {directory_ / "nothing.txt"});
  ExpectRefused("train model_path=tinny data_path=" + (directory_ / "text.txt") + rest, 3, {"tinny", "tiny"});
  ExpectRefused("train model_path=" + directory_.path() + " data_path=" + (directory_ / "text.txt") + rest, 3,
                {"config.json"});
  std::ofstream(directory_ / "bad.jsonl") << "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 256]}\n";
  ExpectRefused("train model_path=tiny data_path=" + (directory_ / "bad.jsonl") + rest, 3,
                {"bad.jsonl:2", "256"});
  std::ofstream(directory_ / "one.jsonl") << "{\"input_ids\": [1]}\n";
  const ProgramResult no_target =
      RunProgram("train model_path=tiny data_path=" + (directory_ / "one.jsonl") + rest);
  EXPECT_EQ(no_target.exit_code, 3) << no_target.output;
  EXPECT_NE(no_target.output.find("step 1 has no target"), std::string::npos) << no_target.output;
}

// A model or a length that no machine of ours holds is refused before anything is taken or written.
TEST_F(CommandLine, MoreThanTheMachinesMemory) {
  const std::string rest = " peak_tflops=1 base_output_directory=" + (directory_ / "runs") +
                           " data_path=" + (directory_ / "text.txt");
  ExpectRefused("train model_path=llama3.1-70b max_target_length=131072 ranks=64" + rest, 4,
                {"a rank on 64 ranks", "this machine has", "optimizer"});
  ExpectRefused("train model_path=tiny max_target_length=2147483648" + rest, 4,
                {"1.00 TiB", "activations", "this machine has"});
}

TEST_F(CommandLine, AnOutputDirectoryThatCannotBeMade) {
  ExpectRefused(
      "train model_path=tiny max_target_length=64 run_name=a data_path=" + (directory_ / "text.txt") +
          " base_output_directory=" + (directory_ / "text.txt") + "/runs",
      4, {"text.txt/runs"});
}

TEST_F(CommandLine, ARunIsReportedAndNotOverwritten) {
  const ProgramResult run = RunProgram("train " + Quick());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  for (const char* fragment : {"machine ", "target ", "mesh ", "model ", "memory ", "step 1/1", "loss ",
                               "grad norm ", "MFU ", "HFU ", "runs/a/metrics.jsonl", "runs/a/checkpoints/"})
    EXPECT_NE(run.output.find(fragment), std::string::npos) << "no " << fragment << " in\n" << run.output;
  ExpectRefused("train " + Quick(), 2, {"runs/a already has steps", "resume=auto"});
}

// A run's config.yml, with what it leaves unset, makes the same run again.
TEST_F(CommandLine, WhatALayerKeepsIsSaidAndReadBack) {
  const std::pair<const char*, const char*> cases[] = {
      {"",
       "keeps     decoder_layer_input, query_proj, key_proj, value_proj, context; by remat_policy "
       "save_qkv_proj_with_context\n"},
      {"remat_policy=full", "keeps     decoder_layer_input; by remat_policy full\n"},
      {"remat_policy=custom mlpwi_0=device mlpwo=device",
       "keeps     decoder_layer_input, mlpwi_0; by remat_policy custom\n"}};
  int n = 0;
  for (const auto& [keys, line] : cases) {
    std::string quick = Quick();
    quick.replace(quick.find("run_name=a"), 10, fmt::format("run_name=first{}", n));
    const ProgramResult run = RunProgram(fmt::format("train {} {}", quick, keys));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    EXPECT_NE(run.output.find(line), std::string::npos) << run.output;
    const ProgramResult again =
        RunProgram(fmt::format("train {}/runs/first{}/config.yml run_name=again{}", directory_.path(), n, n));
    EXPECT_EQ(again.exit_code, 0) << again.output;
    EXPECT_NE(again.output.find(line), std::string::npos) << again.output;
    ++n;
  }
}

TEST_F(CommandLine, SequencesInPasses) {
  ExpectRefused("train tokens_per_pass=32 " + Quick(), 2, {"tokens_per_pass 32", "text.txt", "at least "});
  std::ofstream documents(directory_ / "documents.jsonl");
  for (int i = 0; i < 20; ++i) documents << "{\"input_ids\": [1, 2, 3, 4, 5]}\n";
  documents.close();
  std::string quick = Quick();
  quick.replace(quick.find("text.txt"), 8, "documents.jsonl");
  const ProgramResult run = RunProgram("train tokens_per_pass=16 " + quick);
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("in 1 micro-step, in passes of at most 16 tokens"), std::string::npos)
      << run.output;
}

TEST_F(CommandLine, RunsWithoutANameDoNotMeet) {
  std::string unnamed = Quick();
  unnamed.replace(unnamed.find("run_name=a"), 10, "");
  for (int i = 0; i < 4; ++i) {
    const ProgramResult run = RunProgram("train " + unnamed);
    EXPECT_EQ(run.exit_code, 0) << run.output;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_ / "runs"), fs::directory_iterator()), 4);
}

TEST_F(CommandLine, CheckpointsThatAreDamaged) {
  const ProgramResult run = RunProgram("train " + Quick());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::string checkpoint = directory_ / "runs/a/checkpoints/00000001";
  std::string more = Quick();
  more.replace(more.find("steps=1"), 7, "steps=2");

  // Each file of a checkpoint in turn is cut to half, then taken away.
  int num_files = 0;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string file = entry.path().string();
    if (!file.ends_with(".safetensors") && !file.ends_with("state.json")) continue;
    ++num_files;
    const std::string content = ReadTextFile(file);
    std::ofstream(file, std::ios::trunc) << content.substr(0, content.size() / 2);
    ExpectRefused("train resume=" + checkpoint + " " + more, 3, {file});
    fs::remove(file);
    ExpectRefused("train resume=" + checkpoint + " " + more, 3, {file});
    ExpectRefused("train resume=auto " + more, 3, {"the one checkpoint in", "is damaged"});
    std::ofstream(file) << content;
  }
  EXPECT_GE(num_files, 3);  // weights, optimizer, state
  ExpectRefused("train resume=" + (directory_ / "runs/a/checkpoints/00000009") + " " + more, 3, {"00000009"});

  // And whole again it goes on.
  const ProgramResult resumed = RunProgram("train resume=auto " + more);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
}

TEST_F(CommandLine, MetricsDoNotTakeAClosedStreamsPlace) {
  const ProgramResult run = RunShell("\"$longspan\" train " + Quick() + "</dev/null >&- 2>/dev/null");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(testing::ReadMetrics(directory_ / "runs/a").size(), 1u);
  const std::string metrics = ReadTextFile(directory_ / "runs/a/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 1) << metrics;
}

TEST_F(CommandLine, AnErrorThatCannotBePrintedKeepsItsExitCode) {
  for (const char* to : {"2>&-", "2>/dev/full", ">&- 2>&-", ">/dev/full 2>&1"})
    EXPECT_EQ(RunShell(fmt::format("\"$longspan\" train steps=x {}", to)).exit_code, 2) << to;
}

TEST_F(CommandLine, AnAnswerThatCannotBePrintedIsAnError) {
  for (const char* asked : {"--help", "--version", "train --help", "train --help=markdown"}) {
    const ProgramResult result = RunShell(fmt::format("\"$longspan\" {} 2>&1 >/dev/full", asked));
    EXPECT_EQ(result.exit_code, 4) << asked;
    EXPECT_EQ(result.output, "longspan: error: cannot write to standard output: No space left on device\n");
  }
}

// As with `| head`: no error, and no word.
TEST_F(CommandLine, AnAnswerThatNobodyReadsAnyMoreIsTheEnd) {
  const std::string end = directory_ / "end";
  for (const char* asked :
       {"--version", "train --help", "bench matmul max_target_length=16 model=100m runs=1"}) {
    RunShell(
        fmt::format("{{ sleep 0.1; \"$longspan\" {} 2>{}; echo $? >>{}; }} | true; "
                    "while ! [ -s {} ]; do sleep 0.1; done",
                    asked, end, end, end));
    EXPECT_EQ(ReadTextFile(end), "141\n") << asked;
  }
}

TEST_F(CommandLine, ARunGoesOnWhereNobodySeesIt) {
  std::string many = Quick();  // steps: more than the buffer of a stream holds lines of
  many.replace(many.find("steps=1"), 7, "steps=60");
  const std::string exit_code = directory_ / "exit_code";
  RunShell(
      fmt::format("{{ sleep 0.1; \"$longspan\" train {} 2>&1; echo $? >{}; }} | true; "
                  "while ! [ -s {} ]; do sleep 0.1; done",
                  many, exit_code, exit_code));
  EXPECT_EQ(ReadTextFile(exit_code), "0\n");
  EXPECT_EQ(testing::ReadMetrics(directory_ / "runs/a").size(), 60u);
  many.replace(many.find("run_name=a"), 10, "run_name=b");
  EXPECT_EQ(RunShell("\"$longspan\" train " + many + ">/dev/full").exit_code, 0);
  EXPECT_EQ(testing::ReadMetrics(directory_ / "runs/b").size(), 60u);
}

TEST_F(CommandLine, ALimitOnFileSizesIsNamed) {
  const ProgramResult run = RunShell("ulimit -f 1; \"$longspan\" train " + Quick() + "2>&1");
  EXPECT_EQ(run.exit_code, 4) << run.output;
  EXPECT_NE(run.output.find("File too large; raise the limit on file sizes"), std::string::npos)
      << run.output;
}

TEST_F(CommandLine, ErrorsStayOneLineWhateverAPathHolds) {
  ExpectRefused("train \"$(printf 'a\\nb\\033[2J.yml')\"", 2, {"recipe 'a\\x0ab\\x1b[2J.yml' isn't there"});
  const std::string rest =
      " model_path=tiny max_target_length=64 base_output_directory=" + (directory_ / "runs");
  ExpectRefused("train data_path=" + (directory_ / std::string(300, 'x')) + rest, 3,
                {"File name too long; choose a shorter name"});
  ExpectRefused("train " + (directory_ / std::string(300, 'x')) + rest, 3,
                {"File name too long; choose a shorter name"});
}

TEST_F(CommandLine, ATokenFileIsWrittenAndTrainedOn) {
  testing::WriteText(directory_ / "tokenizer.json", testing::kTinyTokenizer);
  testing::WriteText(directory_ / "d/a.c", "abba");
  testing::WriteText(directory_ / "d/b.txt", "text");
  const std::string tokenize = fmt::format(
      "tokenize data_path={0}/d tokenizer_path={0}/tokenizer.json output={0}/a.tokens data_path_filter=*.c ",
      directory_.path());
  const ProgramResult written = RunProgram(tokenize);
  EXPECT_EQ(written.exit_code, 0) << written.output;
  for (const char* line : {"files     1 read, 1 left out by data_path_filter\n", "documents 1\n",
                           "tokens    4, 1.00 bytes of text each\n", "a.tokens: 0.0 MB, ids of 16 bits\n"})
    EXPECT_NE(written.output.find(line), std::string::npos) << written.output;
  ExpectRefused(tokenize, 2, {"a.tokens is there already"});
  ExpectRefused(tokenize + "format=u64", 2, {"format", "u64", "longspan, u32"});
  ExpectRefused("tokenize data_path=x", 2, {"tokenizer_path is not given"});

  const ProgramResult run =
      RunProgram(fmt::format("train model_path=tiny data_path={0}/a.tokens base_output_directory={0}/runs "
                             "max_target_length=8 steps=1 "
                             "threads_per_rank=1 peak_tflops=1",
                             directory_.path()));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("a.tokens: 1 document, 4 tokens"), std::string::npos) << run.output;
}

TEST_F(CommandLine, PipesAreNotWaitedFor) {
  ASSERT_EQ(std::system(("mkfifo " + (directory_ / "pipe")).c_str()), 0);
  ExpectRefused("train model_path=tiny max_target_length=64 data_path=" + (directory_ / "pipe") +
                    " base_output_directory=" + (directory_ / "runs"),
                3, {"pipe or a device"});
}

}  // namespace
}  // namespace longspan
