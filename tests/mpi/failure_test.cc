// What happens to ranks that are processes when one of them fails.
#include <gtest/gtest.h>

#include <string>

#include "core/clock.h"
#include "mpi/launch.h"
#include "unit/comm/occupations.h"

namespace longspan {
namespace {

using testing::Count;
using testing::Launch;
using testing::ProgramResult;

constexpr int kRanks = 3;

class WhenAProcessFails : public ::testing::TestWithParam<testing::Occupation> {};
INSTANTIATE_TEST_SUITE_P(Mpi, WhenAProcessFails, ::testing::ValuesIn(testing::Occupations()),
                         [](const auto& param) { return param.param.name; });

TEST_P(WhenAProcessFails, TheOthersStopAndSayWhich) {
  for (const int failing : {0, kRanks - 1}) {
    const char* when = failing == 0 ? "at_once" : "later";
    const double begin = Now();
    const ProgramResult result =
        Launch(kRanks, fmt::format("{} {} {} {}", LONGSPAN_MPI_FAILING, GetParam().name, failing, when));
    EXPECT_LT(Now() - begin, 8) << "it should take no time";
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(Count(result.output, "error 4: out of luck\n"), 1) << result.output;
    EXPECT_EQ(Count(result.output, "was told\n"), kRanks - 1) << result.output;
    EXPECT_EQ(Count(result.output, fmt::format("error 5: stopped, since rank {} failed\n", failing)),
              kRanks - 1)
        << result.output;
    EXPECT_EQ(Count(result.output, "MPI_Abort"), 0) << result.output;
  }
}

TEST(ProcessFailure, WhatAllSayIsSaidOnce) {
  const ProgramResult result = Launch(kRanks, fmt::format("{} alike", LONGSPAN_MPI_FAILING));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(Count(result.output, "error 4: out of luck\n"), 1) << result.output;
  EXPECT_EQ(Count(result.output, "error 5: \n"), kRanks - 1) << result.output;
}

TEST(ProcessFailure, ARankThatComputesOnIsEnded) {
  const double begin = Now();
  const ProgramResult result = Launch(kRanks, fmt::format("{} busy", LONGSPAN_MPI_FAILING));
  EXPECT_LT(Now() - begin, 40);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(Count(result.output, "error 4: out of luck\n"), 1) << result.output;
  EXPECT_EQ(Count(result.output, "error 5: stopped, since rank 1 failed\n"), 1) << result.output;
}

TEST(ProcessFailure, AStoppedRankEndsAll) {
  const double begin = Now();
  const ProgramResult result = Launch(kRanks, fmt::format("{} stopped", LONGSPAN_MPI_FAILING));
  EXPECT_LT(Now() - begin, 15);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(Count(result.output,
                  "error 5: all_gather of ranks 0–2 (step 12) has waited 0.8 s for rank 1: "
                  "rank 1 does not answer;"),
            1)
      << result.output;
}

// Rank 2 waits for both others, and rank 0 is not the one that fails.
TEST(ProcessFailure, ARankThatDoesNothingEndsAll) {
  const double begin = Now();
  const ProgramResult result = Launch(kRanks, fmt::format("{} idle", LONGSPAN_MPI_FAILING));
  EXPECT_LT(Now() - begin, 15);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(Count(result.output,
                  "(step 12) has waited 0.8 s for rank 1: rank 1 neither computes nor reads nor "
                  "writes;"),
            1)
      << result.output;
  EXPECT_EQ(Count(result.output, "error 5: stopped, since rank 1 failed\n"), 1) << result.output;
}

TEST(ProcessFailure, ARankThatComputesIsWaitedForAndThatIsSaidOnce) {
  const ProgramResult result = Launch(kRanks, fmt::format("{} slow", LONGSPAN_MPI_FAILING));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output,
            "longspan: all_gather of ranks 0–2 (step 12) has waited 0.8 s for rank 1, which "
            "is not idle: the run goes on (said once)\n");
}

TEST(ProcessFailure, RanksThatWaitForEachOtherEnd) {
  const double begin = Now();
  const ProgramResult result = Launch(kRanks, fmt::format("{} circle", LONGSPAN_MPI_FAILING));
  EXPECT_LT(Now() - begin, 15);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(Count(result.output, "error 1: recv from rank "), 1) << result.output;
  EXPECT_EQ(Count(result.output, "their calls are not in the same order"), 1) << result.output;
  EXPECT_EQ(Count(result.output, "error 5: stopped, since rank "), 2) << result.output;
}

TEST(ProcessFailure, AKilledRankEndsAll) {
  const double begin = Now();
  const ProgramResult result = Launch(kRanks, fmt::format("{} killed", LONGSPAN_MPI_FAILING));
  EXPECT_LT(Now() - begin, 40);
  EXPECT_NE(result.exit_code, 0);
}

}  // namespace
}  // namespace longspan
