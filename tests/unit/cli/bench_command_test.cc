#include "cli/bench_command.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace longspan {
namespace {

using Words = std::vector<std::string>;

bench::Settings Parse(const Words& words, std::string_view subject = "attention") {
  bench::Settings settings;
  LoadKeys("bench", BenchKeys(FindBenchSubject(subject), settings), words);
  return settings;
}

TEST(BenchCommand, NothingGivenIsTheWholeTable) {
  const bench::Settings settings = Parse({});
  for (const int64_t number : {settings.max_target_length, settings.head_dim, settings.query_heads,
                               settings.kv_heads, settings.threads, settings.runs})
    EXPECT_EQ(number, 0);
  EXPECT_EQ(bench::ValueOr(settings.runs, 5), 5);
  EXPECT_EQ(settings.DTypes({DType::kInt32}), std::vector<DType>{DType::kInt32});
  EXPECT_EQ(settings.Threads().front(), 1);
  EXPECT_TRUE(settings.Wants("forward") && settings.Wants("backward"));
  EXPECT_EQ(settings.format, "table");
}

TEST(BenchCommand, EveryKeyReachesItsSetting) {
  const bench::Settings settings =
      Parse({"max_target_length=300", "--format", "json", "head_dim=48", "query_heads=6", "kv_heads=3",
             "dtype=float32", "threads=3", "pass=backward", "runs=7"});
  EXPECT_EQ(settings.max_target_length, 300);
  EXPECT_EQ(settings.head_dim, 48);
  EXPECT_EQ(settings.query_heads, 6);
  EXPECT_EQ(settings.kv_heads, 3);
  EXPECT_EQ(settings.DTypes({}), std::vector<DType>{DType::kFloat32});
  EXPECT_EQ(settings.Threads(), std::vector<int>{3});
  EXPECT_TRUE(settings.Wants("backward"));
  EXPECT_FALSE(settings.Wants("forward"));
  EXPECT_EQ(bench::ValueOr(settings.runs, 5), 7);
  EXPECT_EQ(settings.format, "json");
  EXPECT_EQ(Parse({"model=8b"}, "matmul").model, "8b");
  const bench::Settings step = Parse({"layers=2", "ranks=4", "strategy=usp"}, "step");
  EXPECT_EQ(step.layers, 2);
  EXPECT_EQ(step.ranks, 4);
  EXPECT_EQ(step.strategy, "usp");
  EXPECT_EQ(Parse({"dtype=bfloat16"}).DTypes({}), std::vector<DType>{DType::kBFloat16});
  EXPECT_TRUE(Parse({"pass="}).Wants("backward"));
}

// One word wrong at a time; the message names the key, what it got and what is wanted.
TEST(BenchCommand, Refusals) {
  const auto refused = [](const Words& words, std::initializer_list<std::string_view> fragments) {
    testing::ExpectError(
        fragments, [&] { Parse(words); }, ExitCode::kUsage);
  };
  refused({"head_dims=3"}, {"unknown key 'head_dims'", "did you mean 'head_dim'?"});
  refused({"model=8b"}, {"unknown key 'model'"});  // matmul's
  refused({"runs=1", "runs=2"}, {"'runs' is repeated"});
  refused({"head_dim=1025"}, {"head_dim wants an integer, 0 or one from 1 to 1024, got '1025'"});
  for (const char* bad : {"-1", "", "3x", "1.5", "99999999999999999999"})
    refused({fmt::format("runs={}", bad)}, {"runs wants an integer, 0 or one from 1 to 1000, got", bad});
  refused({"dtype=bf16"}, {"dtype wants one of float32, bfloat16, got 'bf16'"});
  refused({"--fast"}, {"unknown option '--fast'", "longspan bench --help"});
  refused({"recipe.yml"}, {"'recipe.yml'"});
  refused({"--format", "jsn"}, {"format wants one of table, json, got 'jsn'"});
  refused({"--format"}, {"--format wants a value", "table, json"});
  refused({"--format", "json", "--format=table"}, {"--format is repeated"});
}

TEST(BenchCommand, SubjectsAndHeads) {
  const auto refused = [](const Words& words, std::initializer_list<std::string_view> fragments) {
    testing::ExpectError(
        fragments, [&] { BenchCommand(words); }, ExitCode::kUsage);
  };
  refused({}, {"bench of what", "attention, matmul, step, strategies"});
  refused({"matmull"}, {"no 'matmull'", "did you mean 'matmul'?"});
  refused({"attention", "query_heads=3", "kv_heads=2"}, {"query_heads 3", "kv_heads 2"});
}

}  // namespace
}  // namespace longspan
