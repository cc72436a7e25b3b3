// `longspan train` started by an MPI launcher, beside the same run on ranks that are threads.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/file.h"
#include "mpi/launch.h"
#include "support/files.h"
#include "support/runs.h"
#include "support/trace.h"

namespace longspan {
namespace {

using testing::Count;
using testing::Launch;
using testing::NamesInTrace;
using testing::ProgramResult;
using testing::RunProgram;

class Processes : public ::testing::Test {
 protected:
  Processes() {
    std::filesystem::create_directory(directory_ / "texts");
    for (int document = 0; document < 7; ++document) {
      std::ofstream text(directory_ / fmt::format("texts/{}.txt", document));
      for (int i = 0; i < 4 + 9 * document; ++i)
        text << "document " << document << " says " << i * i * 7 % 101 << "\n";
    }
  }

  std::string Keys(const std::string& run, const std::string& more, int steps = 3) const {
    return fmt::format(
        "train model_path=tiny data_path={0}/texts base_output_directory={0}/runs run_name={1} "
        "max_target_length=250 steps={2} learning_rate_schedule_steps=3 learning_rate=1e-2 "
        "threads_per_rank=1 "
        "peak_tflops=1 {3}",
        directory_.path(), run, steps, more);
  }
  std::string Run(const std::string& name) const { return directory_ / ("runs/" + name); }

  // The same run on threads and on processes: every number of each step, every byte of the checkpoint.
  void ExpectSame(int ranks, const std::string& keys) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, keys));
    const std::string name = fmt::format("{}", ++num_runs_), threads = "threads" + name,
                      processes = "mpi" + name;
    const ProgramResult one = RunProgram(Keys(threads, fmt::format("ranks={} {}", ranks, keys)));
    ASSERT_EQ(one.exit_code, 0) << one.output;
    const ProgramResult several = Launch(ranks, "\"$longspan\" " + Keys(processes, keys));
    ASSERT_EQ(several.exit_code, 0) << several.output;
    for (const char* shown : {"\nmesh ", "\nmodel ", "step 3/3"})  // by one rank alone
      EXPECT_EQ(Count(several.output, shown), Count(one.output, shown)) << several.output;
    testing::ExpectSameRun(Run(processes), Run(threads));
  }

  testing::TemporaryDirectory directory_;
  int num_runs_ = 0;
};

TEST_F(Processes, OneAloneIsOneThread) {
  ExpectSame(1, "eval_interval=2 eval_data_path=" + (directory_ / "texts"));
}

class ProcessesOfEachStrategy : public Processes, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Mpi, ProcessesOfEachStrategy,
                         ::testing::Values("all_gather", "ring", "ulysses", "usp"),
                         [](const auto& param) { return param.param; });

TEST_P(ProcessesOfEachStrategy, EqualThreadsBitForBit) {
  for (const char* layout : {"contiguous", "zigzag", "striped"})
    for (const int ranks : {2, 4})
      ExpectSame(ranks, fmt::format("dtype=float32 context_parallel_strategy={} context_parallel_layout={}",
                                    GetParam(), layout));
}

TEST_F(Processes, OfAnyMesh) {
  ExpectSame(4, "data_parallelism=2 global_batch_size=4");
  ExpectSame(4, "fsdp_parallelism=2 shard_parameters=true global_batch_size=4 dtype=float32");
  ExpectSame(3, "context_parallel_strategy=all_gather opt_type=sgd eval_interval=1 eval_data_path=" +
                    (directory_ / "texts/3.txt"));
}

TEST_F(Processes, GoOnWithARunOfThreads) {
  ASSERT_EQ(RunProgram(Keys("straight", "ranks=2")).exit_code, 0);
  ASSERT_EQ(RunProgram(Keys("moved", "ranks=2", /*steps=*/2)).exit_code, 0);
  const ProgramResult rest = Launch(2, "\"$longspan\" " + Keys("moved", "resume=auto"));
  ASSERT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_EQ(Count(rest.output, "\nresume "), 1) << rest.output;
  testing::ExpectSameRun(Run("moved"), Run("straight"));
}

TEST_F(Processes, AreTracedTogether) {
  const std::string keys = "context_parallel_strategy=usp shard_parameters=true profile=true";
  ASSERT_EQ(RunProgram(Keys("threads", "ranks=4 " + keys)).exit_code, 0);
  const ProgramResult run = Launch(4, "\"$longspan\" " + Keys("mpi", keys));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  testing::ExpectSameRun(Run("mpi"), Run("threads"));
  const std::string trace = Run("mpi") + "/profile/trace.json",
                    wanted = Run("threads") + "/profile/trace.json";
  EXPECT_EQ(Count(run.output, "\nprofile   " + trace + ": "), 1) << run.output;
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_FALSE(NamesInTrace(trace, rank).empty());
    EXPECT_EQ(NamesInTrace(trace, rank), NamesInTrace(wanted, rank));
  }
}

// The error is one line, whoever makes it.
TEST_F(Processes, ErrorsAreSaidOnce) {
  const auto expect = [&](const ProgramResult& result, const std::string& error) {
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(Count(result.output, "error: "), 1) << result.output;
    EXPECT_EQ(Count(result.output, error), 1) << result.output;
  };
  expect(
      Launch(4, "\"$longspan\" " + Keys("a", "learning_rat=1")),
      "longspan: rank 0: error: command line: unknown key 'learning_rat'; did you mean 'learning_rate'?\n");
  expect(Launch(2, "\"$longspan\" " + Keys("a", "ranks=4")),
         "ranks is 4, but there are 2 as the launcher started that many processes; start 4, or leave ranks "
         "out\n");
  expect(Launch(2, "\"$longspan\" plan model_path=tiny hardware=h100"), "plan runs in one process");
}

// All hear of a write that fails on one of them.
TEST_F(Processes, AWriteThatFailsIsSaidWithItsRank) {
  const auto launch = [&](const std::string& more) {
    const std::string keys = Keys("run", "shard_parameters=true checkpoint_period=1 resume=auto " + more);
    return Launch(1, fmt::format("\"$longspan\" {0} : -n 1 sh -c 'ulimit -f 1000; exec \"$0\" {0}' "
                                 "\"$longspan\"",
                                 keys));
  };
  const ProgramResult stopped = launch("");
  EXPECT_NE(stopped.exit_code, 0);
  EXPECT_EQ(Count(stopped.output, " error: "), 1) << stopped.output;
  EXPECT_EQ(Count(stopped.output, "error: the checkpoint of step 1 was not saved: rank 1: cannot write '"), 1)
      << stopped.output;
  EXPECT_TRUE(std::filesystem::is_empty(Run("run") + "/checkpoints"));
  const ProgramResult warned = launch("on_checkpoint_error=continue");
  EXPECT_NE(warned.exit_code, 0);
  EXPECT_EQ(Count(warned.output, "longspan: warning: the checkpoint of step "), 2) << warned.output;
  EXPECT_EQ(Count(warned.output, "error: the checkpoint of step 3, the last one, was not saved: rank 1: "), 1)
      << warned.output;
  EXPECT_TRUE(std::filesystem::is_empty(Run("run") + "/checkpoints"));
  const ProgramResult good = Launch(2, "\"$longspan\" " + Keys("run", "resume=auto"));
  EXPECT_EQ(good.exit_code, 0) << good.output;
}

TEST_F(Processes, ThatDisagreeAreRefused) {
  const ProgramResult result = Launch(1, fmt::format("\"$longspan\" {} : {} \"$longspan\" {}", Keys("a", ""),
                                                     "-n 1", Keys("a", "adam_b1=0.8")));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(
      Count(result.output,
            "longspan: rank 1: error: ranks disagree on the recipe: rank 1 has 'adam_b1: 0.8' and rank 0 "
            "'adam_b1: 0.9'"),
      1)
      << result.output;
  EXPECT_EQ(Count(result.output, "longspan: rank 0: error: stopped, since rank 1 failed\n"), 1)
      << result.output;
  EXPECT_FALSE(std::filesystem::exists(Run("a")));
}

}  // namespace
}  // namespace longspan
