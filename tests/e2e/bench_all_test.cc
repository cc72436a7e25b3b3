// bench/all over a program that measures nothing: which figures are held to which goals.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/files.h"
#include "support/program.h"

namespace longspan {
namespace {

using testing::ProgramResult;
using testing::RunShell;
using testing::TemporaryDirectory;

class BenchAll : public ::testing::Test {
 protected:
  // Runs the sections `only` with a program that answers `json` to whatever it is asked.
  ProgramResult Run(const std::string& json, const std::string& only) {
    const TemporaryDirectory directory;
    const std::string program = directory / "longspan";
    std::ofstream(program) << "#!/bin/sh\ncat <<'END'\n" << json << "\nEND\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    return RunShell(fmt::format("'{}/bench/all' --program '{}' {} 2>&1", LONGSPAN_SOURCE_DIR, program, only));
  }
};

void ExpectLine(const ProgramResult& result, const std::string& first, const std::string& second) {
  const size_t begin = result.output.find(first);
  ASSERT_NE(begin, std::string::npos) << first << " is not in\n" << result.output;
  const std::string line = result.output.substr(begin, result.output.find('\n', begin) - begin);
  EXPECT_NE(line.find(second), std::string::npos) << second << " is not in\n" << line;
}

constexpr const char* kUnits = R"("target": "avx512bf16",
  "units": [{"unit": "vdpbf16ps", "threads": 2, "gflops": 400.0, "gflops_random": 390.0}])";

TEST_F(BenchAll, FloorsAndCeilings) {
  const std::string json = fmt::format(R"({{"unit": "vdpbf16ps", {},
  "medians": [
    {{"pass": "forward", "threads": 1, "shapes": 6, "fraction_of_peak": 0.81}},
    {{"pass": "weight_gradient", "threads": 2, "shapes": 6, "fraction_of_peak": 0.79}}],
  "accuracy": [
    {{"name": "same_output", "true_output": false, "head_dim": 64, "max_target_length": 4096, "dq": 4e-3, "dk": 6e-3}},
    {{"name": "offset_keys", "true_output": true, "head_dim": 64, "max_target_length": 4096, "dq": 6e-3}}]}})",
                                       kUnits);
  const ProgramResult result = Run(json, "--only matmul --only accuracy");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  ExpectLine(result, "vdpbf16ps", "390.0 with random numbers");
  ExpectLine(result, "products forward", "≥ 0.800  met");
  ExpectLine(result, "products weight_gradient", "≥ 0.800  MISSED");
  ExpectLine(result, "error of dq, same_output", "≤ 5.0e-03  met");
  ExpectLine(result, "error of dk, same_output", "≤ 5.0e-03  MISSED");
  ExpectLine(result, "error of dq, offset_keys", "≤ 1.0e-02  met");
  ExpectLine(result, "3 goals met", "2 missed, 0 not measured, 0 figures without a goal");
}

TEST_F(BenchAll, AnotherCpuHasOtherGoalsOrNone) {
  const auto medians = [](const char* unit) {
    return fmt::format(R"({{"unit": "{}", {}, "medians": [
      {{"pass": "forward", "threads": 1, "shapes": 6, "fraction_of_peak": 0.5}}]}})",
                       unit, kUnits);
  };
  ExpectLine(Run(medians("amx bf16"), "--only matmul"), "products forward", "≥ 0.420  met");
  const ProgramResult none = Run(medians("avx2 fma"), "--only matmul");
  ExpectLine(none, "  there are no goals", "avx2 fma");
  ExpectLine(none, "0 goals met", "0 missed, 0 not measured, 1 figures without a goal");
}

// Before anything is measured.
TEST_F(BenchAll, ProgramsThatThereAreNot) {
  const auto refused = [](const std::string& arguments, int exit_code, const std::string& message) {
    const ProgramResult result =
        RunShell(fmt::format("'{}/bench/all' {} 2>&1", LONGSPAN_SOURCE_DIR, arguments));
    EXPECT_EQ(result.exit_code, exit_code) << result.output;
    EXPECT_NE(result.output.find(message), std::string::npos) << result.output;
    EXPECT_EQ(result.output.find("=="), std::string::npos) << result.output;
  };
  refused("--program /nowhere/longspan", 2, "there is no program /nowhere/longspan");
  refused("--program /", 2, "there is no program /");
  refused("--program /bin/true --peers-python /nowhere/python", 2, "there is no program /nowhere/python");
  refused("--program /bin/false", 1, "failed: exit code 1");
  refused("--program /bin/true", 1, "failed: /bin/true doesn't answer as longspan does");
}

TEST_F(BenchAll, ASectionThatFailsLeavesTheOthers) {
  const ProgramResult result = Run(fmt::format(R"({{"unit": "vdpbf16ps", {}, "cases": [],
    "medians": [{{"pass": "forward", "threads": 1, "shapes": 6, "fraction_of_peak": 0.81}}]}})",
                                               kUnits),
                                   "--only step --only matmul --only matmul");
  EXPECT_EQ(result.exit_code, 1);
  ExpectLine(result, "  FAILED", "the answer lacks something");
  ExpectLine(result, "1 goals met", "0 missed");  // not twice
  ExpectLine(result, "failed: ", "step");
}

}  // namespace
}  // namespace longspan
