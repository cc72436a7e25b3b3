// `longspan generate` as a person runs it.
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/program.h"
#include "support/runs.h"
#include "support/tiny.h"

namespace longspan {
namespace {

using namespace testing;

class GenerateCommandTest : public ::testing::Test {
 protected:
  GenerateCommandTest() {
    ModelConfig config = TinyConfig();
    config.vocab_size = 256;  // bytes
    WriteModel(directory_ / "model", config, 3);
  }
  // Standard output alone.
  std::string Text(const std::string& arguments) const {
    const ProgramResult result =
        RunShell(fmt::format("\"$longspan\" generate model_path={} dtype=float32 {} 2>/dev/null",
                             directory_ / "model", arguments));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  }
  void ExpectFailure(const std::string& arguments, int code, std::string_view part) const {
    const ProgramResult result = RunProgram("generate " + arguments);
    EXPECT_EQ(result.exit_code, code) << result.output;
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  }

  const TemporaryDirectory directory_;
};

TEST_F(GenerateCommandTest, TheSameTextFromTheSamePrompt) {
  const std::string greedy = Text("prompt='Once upon' max_new_tokens=30");
  EXPECT_TRUE(greedy.ends_with('\n'));
  EXPECT_GT(greedy.size(), 10u);
  WriteText(directory_ / "prompt.txt", "Once upon");
  EXPECT_EQ(
      Text(fmt::format("prompt_path={} max_new_tokens=30 threads_per_rank=1", directory_ / "prompt.txt")),
      greedy);
  EXPECT_EQ(Text("prompt='Once upon' max_new_tokens=30 temperature=1 top_k=1"), greedy);
  // What comes first does not depend on how much is asked for.
  const std::string shorter = Text("prompt='Once upon' max_new_tokens=7");
  EXPECT_EQ(greedy.substr(0, shorter.size() - 1), shorter.substr(0, shorter.size() - 1));

  const std::string drawn = Text("prompt='Once upon' max_new_tokens=30 temperature=3 seed=1");
  EXPECT_EQ(Text("prompt='Once upon' max_new_tokens=30 temperature=3 seed=1"), drawn);
  EXPECT_NE(Text("prompt='Once upon' max_new_tokens=30 temperature=3 seed=2"), drawn);
}

TEST_F(GenerateCommandTest, EndsAtTheModelsEnd) {
  std::string all = "[0";
  for (int id = 1; id < 256; ++id) all += fmt::format(", {}", id);
  WriteText(directory_ / "model/generation_config.json", fmt::format(R"({{"eos_token_id": {}]}})", all));
  EXPECT_EQ(Text("prompt=abc max_new_tokens=30"), "\n");
}

TEST_F(GenerateCommandTest, WhatDoesNotWorkIsRefused) {
  const std::string model = "model_path=" + directory_ / "model ";
  ExpectFailure(model, 2, "the prompt is empty");
  ExpectFailure(model + "prompt=a prompt_path=b", 2, "prompt and prompt_path are both given");
  ExpectFailure(model + "prompt_path=" + directory_ / "none", 3, "none");
  ExpectFailure(model + "prompt=a max_new_tokens=0", 2, "max_new_tokens wants");
  ExpectFailure(model + "prompt=a top_p=1.5", 2, "top_p wants");
  ExpectFailure("model_path=tiny prompt=a", 2, "built-in model, which has no weights");
  ExpectFailure("prompt=a", 2, "model_path is not given");
  ExpectFailure(model + "prompt=a attention_mask=full", 2, "lets a row see what comes behind it");
  ExpectFailure(model + "promt=a", 2, "did you mean 'prompt'?");
  const ProgramResult help = RunProgram("generate --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.output.find("max_new_tokens"), std::string::npos);
}

}  // namespace
}  // namespace longspan
