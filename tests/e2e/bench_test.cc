// `longspan bench` from the command line, on cases that are over at once. How fast they are is not tested.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/program.h"

namespace longspan {
namespace {

using nlohmann::json;
using testing::ProgramResult;
using testing::RunProgram;

json Bench(const std::string& arguments) {
  const ProgramResult result = RunProgram("bench " + arguments + " --format json");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return json::parse(result.output);
}

void ExpectSound(const json& report) {
  EXPECT_GT(report.at("peak_gflops").get<double>(), 0);
  EXPECT_FALSE(report.at("unit").get<std::string>().empty());
  EXPECT_FALSE(report.at("units").empty());
  for (const json& row : report.at("cases")) {
    for (const char* key : {"max_target_length", "head_dim", "query_heads", "kv_heads", "threads"})
      EXPECT_GE(row.at(key).get<int64_t>(), 1) << key << " of " << row;
    for (const char* key : {"gflops", "fraction_of_peak", "seconds_min"})
      EXPECT_GT(row.at(key).get<double>(), 0) << key << " of " << row;
    EXPECT_LE(row.at("seconds_min"), row.at("seconds")) << row;
    EXPECT_LE(row.at("seconds"), row.at("seconds_max")) << row;
  }
}

// Operations of useful work that the case claims.
double Flops(const json& row) {
  return row.at("gflops").get<double>() * 1e9 * row.at("seconds").get<double>();
}

TEST(BenchCommand, Attention) {
  const json report = Bench("attention max_target_length=256 runs=1 query_heads=4 kv_heads=1 threads=2");
  ExpectSound(report);
  const json& cases = report.at("cases");
  ASSERT_EQ(cases.size(), 8u);  // two types, two widths, two passes
  for (const json& row : cases) {
    EXPECT_EQ(row.at("name"), "causal");
    EXPECT_EQ(row.at("query_heads"), 4);
    EXPECT_EQ(row.at("kv_heads"), 1);
    EXPECT_EQ(row.at("threads"), 2);
    const double pairs = 256 * 257 / 2, width = row.at("head_dim").get<double>();
    const double products = row.at("pass") == "forward" ? 2 : 5;
    EXPECT_NEAR(Flops(row) / (2 * products * pairs * 4 * width), 1, 1e-9) << row;
  }
}

TEST(BenchCommand, MasksOfLongSequences) {
  const json report = Bench(
      "attention max_target_length=32768 head_dim=16 query_heads=1 kv_heads=1 dtype=float32 threads=1 "
      "pass=forward runs=1");
  ExpectSound(report);
  const json& cases = report.at("cases");
  ASSERT_EQ(cases.size(), 3u);
  const double pairs[] = {32768.0 * 32769 / 2, 64 * 512.0 * 513 / 2, 1024.0 * 1025 / 2 + 31744.0 * 1024};
  const char* const names[] = {"causal", "packed_512", "window_1024"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cases[i].at("name"), names[i]);
    EXPECT_NEAR(Flops(cases[i]) / (4 * pairs[i] * 16), 1, 1e-9) << cases[i];
    ASSERT_EQ(cases[i].contains("relative_to_causal"), i > 0);
    if (i == 0) continue;
    const double relative =
        cases[i].at("seconds").get<double>() / pairs[i] / (cases[0].at("seconds").get<double>() / pairs[0]);
    EXPECT_NEAR(cases[i].at("relative_to_causal").get<double>() / relative, 1, 1e-9);
  }
}

TEST(BenchCommand, Matmul) {
  const json report = Bench("matmul model=100m max_target_length=16 runs=1 threads=1");
  ExpectSound(report);
  ASSERT_EQ(report.at("cases").size(), 18u);  // six shapes, three passes
  EXPECT_NEAR(Flops(report.at("cases")[0]) / (2.0 * 16 * 768 * 768), 1, 1e-9);
  ASSERT_EQ(report.at("medians").size(), 3u);
  for (const json& median : report.at("medians")) {
    EXPECT_EQ(median.at("shapes"), 6);
    EXPECT_GT(median.at("fraction_of_peak").get<double>(), 0);
  }
}

TEST(BenchCommand, ATableByDefault) {
  const ProgramResult result =
      RunProgram("bench attention max_target_length=64 head_dim=64 threads=1 dtype=float32 runs=1");
  EXPECT_EQ(result.exit_code, 0);
  for (const char* fragment : {"GFLOP/s", "of peak", "T 64, D 64, heads 8/4", "forward", "backward"})
    EXPECT_NE(result.output.find(fragment), std::string::npos) << fragment << " is not in\n" << result.output;
}

TEST(BenchCommand, Refusals) {
  const auto refused = [](const std::string& arguments, const std::string& fragment) {
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_NE(result.output.find("longspan: error: "), std::string::npos) << result.output;
    EXPECT_NE(result.output.find(fragment), std::string::npos) << result.output;
  };
  refused("benhc", "did you mean 'bench'?");
  refused("bench atention", "did you mean 'attention'?");
  refused("bench attention head_dims=64", "did you mean 'head_dim'?");
  refused("bench attention runs=none", "runs wants an integer from 1 to 1000, got 'none'");
}

}  // namespace
}  // namespace longspan
