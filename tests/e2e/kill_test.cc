// A run that is killed again and again, at any moment, and started again by the same command, ends with the
// weights of the run that nobody disturbed, to the bit; and nobody cleans up meanwhile.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/file.h"
#include "core/random.h"
#include "support/checkpoints.h"
#include "support/files.h"
#include "support/runs.h"
#include "train/checkpoint_folder.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using Seconds = std::chrono::duration<double>;
using Names = std::set<std::string>;

constexpr int kDefaultKills = 8;
constexpr int kSteps = 24;
constexpr int kKept = 3;  // checkpoints

int NumKills() {
  const char* const wanted = std::getenv("LONGSPAN_KILLS");
  return wanted == nullptr ? kDefaultKills : std::atoi(wanted);
}

class Kill : public ::testing::Test {
 protected:
  Kill() {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i << " says " << i * i * 7 % 101 << "\n";
  }

  // A save every other step, so that much of the time is spent in one.
  std::vector<std::string> Arguments(const std::string& run) const {
    return {"train",
            "model_path=tiny",
            "data_path=" + directory_ / "text.txt",
            "base_output_directory=" + directory_.path(),
            "run_name=" + run,
            "max_target_length=384",
            "ranks=2",
            "shard_parameters=true",
            "threads_per_rank=1",
            "peak_tflops=1",
            "learning_rate=3e-3",
            "resume=auto",
            "checkpoint_period=2",
            fmt::format("max_num_checkpoints_to_keep={}", kKept),
            fmt::format("steps={}", kSteps)};
  }
  pid_t Start(const std::string& run) const {
    const std::vector<std::string> arguments = Arguments(run);
    std::vector<char*> words = {const_cast<char*>(LONGSPAN_PROGRAM)};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    const std::string log = LogOf(run);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0) return pid;
    if (freopen(log.c_str(), "w", stdout) == nullptr || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(126);
    execv(words[0], words.data());
    _exit(127);
  }
  std::string LogOf(const std::string& run) const { return directory_ / (run + ".log"); }
  // The checkpoints that are complete, and what is being written.
  std::pair<Names, Names> Folder(const std::string& run) const {
    Names complete, temporary;
    std::error_code error;
    for (fs::directory_iterator it(directory_ / (run + "/checkpoints"), error), end; !error && it != end;
         it.increment(error)) {
      const std::string name = it->path().filename();
      if (name != "latest") (name.starts_with(".") ? temporary : complete).insert(name);
    }
    return {complete, temporary};
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(Kill, AtAnyMomentLosesNothing) {
  const auto begun = std::chrono::steady_clock::now();
  int status = 0;
  const pid_t undisturbed = Start("undisturbed");
  ASSERT_EQ(waitpid(undisturbed, &status, 0), undisturbed);
  ASSERT_EQ(status, 0) << ReadTextFile(LogOf("undisturbed"));
  const double seconds = Seconds(std::chrono::steady_clock::now() - begun).count();

  const CounterRandom random(5, "kills");
  const int num_kills = NumKills();
  int num_in_saves = 0, num_runs = 0;
  std::map<std::string, int> finished;  // runs, by how often they were killed
  std::string run;
  int kills_of_run = 0;
  for (int kill_number = 0; kill_number < num_kills;) {
    if (run.empty()) {
      run = fmt::format("killed{}", num_runs++);
      kills_of_run = 0;
    }
    const Names before = Folder(run).first;
    const pid_t pid = Start(run);
    // Some right at the start, most anywhere within what the whole run takes, so that they fall on what the
    // program does in its first moments, in steps and in saves.
    const double delay =
        random.Uniform(static_cast<uint64_t>(kill_number)) * (kill_number % 4 == 0 ? 0.2 : 0.9);
    std::this_thread::sleep_for(Seconds(delay * seconds));
    kill(pid, SIGKILL);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    const auto [complete, temporary] = Folder(run);
    if (WIFEXITED(status)) {  // it was quicker
      ASSERT_EQ(status, 0) << ReadTextFile(LogOf(run));
      finished[run] = kills_of_run;
      run.clear();
      continue;
    }
    ++kill_number;
    ++kills_of_run;
    num_in_saves += !temporary.empty();
    // What was complete still is, but for old ones that newer ones took the place of.
    const std::string checkpoints = directory_ / (run + "/checkpoints");
    for (const std::string& name : before)
      EXPECT_TRUE(complete.contains(name) ||
                  std::ranges::count_if(complete, [&](const std::string& other) { return other > name; }) >=
                      kKept)
          << name << " is gone";
    for (const std::string& name : complete) testing::VerifyCheckpoint(checkpoints + "/" + name);
    if (const std::string latest = LatestCheckpoint(checkpoints); !latest.empty()) {
      EXPECT_TRUE(complete.contains(fs::path(latest).filename())) << latest;
    }
  }
  if (!run.empty()) {
    const pid_t last = Start(run);
    ASSERT_EQ(waitpid(last, &status, 0), last);
    ASSERT_EQ(status, 0) << ReadTextFile(LogOf(run));
    finished[run] = kills_of_run;
  }
  for (const auto& [name, kills] : finished) {
    SCOPED_TRACE(name);
    testing::ExpectSameRun(directory_ / name, directory_ / "undisturbed");
    const auto [complete, temporary] = Folder(name);
    EXPECT_EQ(complete, Folder("undisturbed").first);
    EXPECT_TRUE(temporary.empty());
  }
  std::printf("%d kills of %zu runs, %d of them while a checkpoint was written\n", num_kills, finished.size(),
              num_in_saves);
}

}  // namespace
}  // namespace longspan
