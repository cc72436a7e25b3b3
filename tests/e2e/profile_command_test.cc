// A traced run as a person has it, beside the trace of its plan.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "support/files.h"
#include "support/program.h"
#include "support/trace.h"

namespace longspan {
namespace {

using testing::NamesInTrace;
using testing::ProgramResult;
using testing::RunProgram;

class ProfileProgram : public ::testing::Test {
 protected:
  ProfileProgram() {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 4000; ++i) text << "line " << i * i << " of the text\n";
  }
  std::string Keys(const std::string& more) const {
    return fmt::format(
        "model_path=tiny data_path={0}/text.txt base_output_directory={0}/runs run_name=a peak_tflops=1 "
        "max_target_length=1024 ranks=4 threads_per_rank=1 {1}",
        directory_.path(), more);
  }

  testing::TemporaryDirectory directory_;
};

// What a plan shows of one rank on an accelerator, a run shows of each on the CPU: but for weights that are
// packed, and messages that arrive, which in a plan are those of its neighbour.
TEST_F(ProfileProgram, ShowsWhatItsPlanShows) {
  int i = 0;
  for (const std::string keys :
       {"context_parallel_strategy=ring", "context_parallel_strategy=usp shard_parameters=true",
        "context_parallel_strategy=all_gather remat_policy=custom context=offload opt_type=sgd"}) {
    SCOPED_TRACE(keys);
    const std::string plan_trace = directory_ / "plan.json";
    const ProgramResult plan = RunProgram("plan " + Keys(keys) + " hardware=h100 --trace " + plan_trace);
    ASSERT_EQ(plan.exit_code, 0) << plan.output;
    const std::string name = fmt::format("run_name=b{}", ++i);
    std::string words = Keys(keys + " steps=3 profile=true");
    words.replace(words.find("run_name=a"), 10, name);
    const ProgramResult run = RunProgram("train " + words);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const std::string trace = directory_ / fmt::format("runs/b{}/profile/trace.json", i);
    EXPECT_NE(run.output.find("profile   " + trace), std::string::npos) << run.output;
    std::set<std::string> planned;
    for (int rank = 0; rank < 4; ++rank)
      if (planned.empty()) planned = NamesInTrace(plan_trace, rank);
    EXPECT_FALSE(planned.empty());
    for (int rank = 0; rank < 4; ++rank) {
      std::set<std::string> shown = NamesInTrace(trace, rank);
      shown.erase("compute: pack");
      shown.erase("receive: recv");
      EXPECT_EQ(shown, planned) << "rank " << rank;
    }
  }
}

TEST_F(ProfileProgram, ARunWithNothingToTraceIsRefused) {
  const ProgramResult run =
      RunProgram("train " + Keys("steps=3 profile=true skip_first_n_steps_for_profiler=3"));
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_NE(run.output.find("of 3 steps none would be traced"), std::string::npos) << run.output;
  EXPECT_FALSE(std::filesystem::exists(directory_ / "runs/a"));
}

}  // namespace
}  // namespace longspan
