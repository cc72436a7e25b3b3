// What ends one process of a run ends all of it, and what was saved goes on. docs/reference/failures.md is
// this table, with that of tests/distributed/faults_test.cc.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/clock.h"
#include "core/file.h"
#include "mpi/launch.h"
#include "support/background_program.h"
#include "support/files.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::BackgroundProgram;
using testing::Count;
using testing::ProgramResult;
using testing::WaitUntil;

constexpr int kRanks = 4;
constexpr double kLimit = 40;  // seconds

// Each rank runs in a folder of its own, with its own data.txt, and leaves its process's number there.
class ProcessFaults : public ::testing::Test {
 protected:
  ProcessFaults() {
    for (int rank = 0; rank < kRanks; ++rank) {
      fs::create_directory(Folder(rank));
      WriteData(rank, "line ");
    }
  }

  std::string Folder(int rank) const { return directory_ / fmt::format("{}", rank); }
  void WriteData(int rank, const std::string& line) const {
    std::ofstream text(Folder(rank) + "/data.txt");
    for (int i = 0; i < 2000; ++i) text << line << i * i << " of the text\n";
  }
  std::string Run() const { return directory_ / "runs/a"; }
  // `program`: of rank 2.
  std::string Command(const std::string& keys, const std::string& program = LONGSPAN_PROGRAM) const {
    return fmt::format(
        "{0} {1} sh -c 'rank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; cd {2}/$rank; echo $$ >pid; "
        "program={3}; test $rank = 2 && program={4}; exec $program train model_path=tiny data_path=data.txt "
        "base_output_directory={2}/runs run_name=a max_target_length=128 checkpoint_period=1 "
        "threads_per_rank=1 "
        "lr_schedule_type=constant peak_tflops=1 failure_timeout=1 {5} 2>&1 >said'",
        LONGSPAN_MPIEXEC, kRanks, directory_.path(), LONGSPAN_PROGRAM, program, keys);
  }
  // Waits for some steps, sends the signal to a rank, and gives back what all have said, once they have
  // ended.
  ProgramResult RunWithSignal(int rank, int signal) {
    fs::remove_all(directory_ / "runs");
    BackgroundProgram ranks(Command("steps=100000"));
    EXPECT_TRUE(WaitUntil([&] {
      const std::string path = Run() + "/metrics.jsonl";
      return Exists(path) && Count(ReadTextFile(path), "\n") >= 3;
    }));
    EXPECT_EQ(kill(std::stoi(ReadTextFile(Folder(rank) + "/pid")), signal), 0);
    const double begin = Now();
    const ProgramResult result = ranks.Wait();
    EXPECT_LT(Now() - begin, kLimit);
    EXPECT_NE(result.exit_code, 0) << result.output;
    return result;
  }
  void ExpectGoesOn() {
    const int64_t steps = std::ssize(testing::ReadMetrics(Run())) + 1;
    const ProgramResult rest = testing::RunShell(Command(fmt::format("steps={} resume=auto", steps)));
    EXPECT_EQ(rest.exit_code, 0) << rest.output;
    EXPECT_EQ(std::ssize(testing::ReadMetrics(Run())), steps);
  }
  // The error is one line, beside what the launcher says.
  ProgramResult ExpectRefused(const std::string& error, const std::string& command) {
    const double begin = Now();
    const ProgramResult result = testing::RunShell(command);
    EXPECT_LT(Now() - begin, kLimit);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(Count(result.output, error), 1) << result.output;
    EXPECT_EQ(Count(result.output, "error: ") - Count(result.output, "error: stopped, since rank "), 1)
        << result.output;
    return result;
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(ProcessFaults, OneThatIsKilledEndsAll) {
  for (int rank = 0; rank < kRanks; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(RunWithSignal(rank, SIGKILL).exit_code, 128 + SIGKILL);
    ExpectGoesOn();
  }
}

TEST_F(ProcessFaults, OneThatCrashesEndsAll) {
  EXPECT_EQ(RunWithSignal(1, SIGSEGV).exit_code, 128 + SIGSEGV);
  ExpectGoesOn();
}

TEST_F(ProcessFaults, OneThatIsStoppedEndsAll) {
  for (int rank = 0; rank < kRanks; ++rank) {
    SCOPED_TRACE(rank);
    const ProgramResult result = RunWithSignal(rank, SIGSTOP);
    EXPECT_EQ(result.exit_code, 5) << result.output;
    EXPECT_EQ(
        Count(result.output, fmt::format(" has waited 1 s for rank {0}: rank {0} does not answer; ", rank)),
        1)
        << result.output;
    EXPECT_EQ(Count(result.output, ": step "), 1) << result.output;
    ExpectGoesOn();
  }
}

TEST_F(ProcessFaults, AFullDiskEndsAll) {
  // A namespace of its own, so that the mount ends with this process in any case.
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    GTEST_SKIP()
        << "a small file system can be mounted by root only; faults_test covers full disks of threads";
  fs::create_directories(Run());
  ASSERT_EQ(mount("longspan-test", Run().c_str(), "tmpfs", 0, "size=16k"), 0) << std::strerror(errno);
  const ProgramResult result =
      ExpectRefused(fmt::format("error: cannot write '{}/metrics.jsonl': ", Run()),  // all or a part
                    Command("steps=400 enable_checkpointing=false enable_tensorboard=false"));
  EXPECT_EQ(Count(result.output, "longspan: rank 0: step "), 1) << result.output;
  umount(Run().c_str());
}

TEST_F(ProcessFaults, RanksThatDisagreeAreRefused) {
  fs::copy_file(LONGSPAN_PROGRAM, directory_ / "other");
  std::ofstream(directory_ / "other", std::ios::app) << "one byte more\n";
  ExpectRefused("longspan: rank 2: error: ranks disagree on the program: rank 2 has '",
                Command("steps=3", directory_ / "other"));

  WriteData(3, "longer line ");
  ExpectRefused(
      "longspan: rank 3: error: ranks disagree on model and data: rank 3 has 'data.txt: 1 document, ",
      Command("steps=3"));
  fs::remove(Folder(3) + "/data.txt");
  ExpectRefused("longspan: rank 3: error: cannot ", Command("steps=3"));
  EXPECT_FALSE(fs::exists(Run()));
}

}  // namespace
}  // namespace longspan
