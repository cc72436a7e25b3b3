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
  for (const json& unit : report.at("units")) {
    // The same instructions; random numbers may lower the clock.
    const double ratio = unit.at("gflops_random").get<double>() / unit.at("gflops").get<double>();
    EXPECT_GT(ratio, 0.1) << unit;
    EXPECT_LT(ratio, 10) << unit;
  }
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

TEST(BenchCommand, ExactnessOfGradients) {
  const json report = Bench("attention pass=accuracy max_target_length=300 head_dim=128 threads=2");
  EXPECT_TRUE(report.at("cases").empty());
  ASSERT_EQ(report.at("accuracy").size(), 3u);
  for (const json& row : report.at("accuracy")) {
    EXPECT_EQ(row.at("max_target_length"), 300);
    // bf16 rounds by 2^-9 at most: less than a thousandth would be float64 compared with itself.
    for (const char* gradient : {"dq", "dk", "dv"}) {
      if (!row.contains(gradient)) continue;
      EXPECT_GT(row.at(gradient).get<double>(), 1e-3) << row;
      EXPECT_LT(row.at(gradient).get<double>(), row.at("true_output") ? 2e-2 : 5e-3) << row;
    }
  }
  EXPECT_TRUE(report.at("accuracy")[0].contains("dk"));
}

TEST(BenchCommand, Step) {
  const json report =
      Bench("step model=tiny layers=1 max_target_length=64 ranks=2 threads=2 strategy=ulysses runs=2");
  ExpectSound(report);
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json& row = report.at("cases")[0];
  EXPECT_EQ(row.at("name"), "tiny");
  EXPECT_EQ(row.at("pass"), "step");
  EXPECT_EQ(row.at("ranks"), 2);
  EXPECT_EQ(row.at("threads"), 2);
  EXPECT_EQ(row.at("layers"), 1);
  // Width 128, MLP 384, 256 ids, heads as wide as the layer: docs/reference/metrics.md.
  const double matrices = 2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 384 + 128 * 256;
  EXPECT_NEAR(Flops(row) / (6 * matrices * 64 + 12 * (64 * 65 / 2) * 128), 1, 1e-9);
  EXPECT_NEAR(row.at("tokens_per_second").get<double>() * row.at("seconds").get<double>() / 64, 1, 1e-9);
}

TEST(BenchCommand, Strategies) {
  const json report = Bench("strategies model=tiny max_target_length=64 ranks=2 threads=2 runs=1");
  ExpectSound(report);
  const json& cases = report.at("cases");
  ASSERT_EQ(cases.size(), 5u);
  const char* const names[] = {"one_rank", "ring", "ulysses", "all_gather", "usp"};
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(cases[i].at("name"), names[i]);
    EXPECT_EQ(cases[i].at("ranks"), i == 0 ? 1 : i == 4 ? 4 : 2);
    EXPECT_EQ(cases[i].at("threads"), i == 4 ? 4 : 2);
    EXPECT_NEAR(Flops(cases[i]) / Flops(cases[0]), 1, 1e-9);
    ASSERT_EQ(cases[i].contains("relative_to_one_rank"), i > 0);
    if (i == 0) continue;
    const double ratio = cases[0].at("seconds").get<double>() / cases[i].at("seconds").get<double>();
    EXPECT_NEAR(cases[i].at("relative_to_one_rank").get<double>() / ratio, 1, 1e-9);
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
  refused("bench step threads=3 ranks=2", "threads 3 is no multiple of ranks 2");
  refused("bench step model=100b", "model wants one of 100m");
  refused("bench attention runs=none", "runs wants an integer, 0 or one from 1 to 1000, got 'none'");
}

}  // namespace
}  // namespace longspan
