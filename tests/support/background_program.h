// The longspan program, or several under a launcher, while it runs: for tests that send it signals.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <string>

#include "core/file.h"
#include "support/files.h"
#include "support/program.h"
#include "support/wait_until.h"

namespace longspan::testing {

class BackgroundProgram {
 public:
  // A shell command line, in which $longspan is the program.
  explicit BackgroundProgram(const std::string& command_line) {
    const std::string command =
        fmt::format("longspan='{}'; exec {} </dev/null >{} 2>&1", LONGSPAN_PROGRAM, command_line, output_);
    pid_ = fork();
    CHECK(pid_ >= 0);
    if (pid_ > 0) return;
    // A program ignores what it was started to ignore, as a shell's background jobs are.
    for (const int of : {SIGINT, SIGTERM}) signal(of, SIG_DFL);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  ~BackgroundProgram() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;

  void Signal(int signal) const { CHECK(kill(pid_, signal) == 0); }
  // Its code as a shell has it, and what it has said.
  ProgramResult Wait() {
    int status = 0;
    CHECK(waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ReadTextFile(output_)};
  }

 private:
  TemporaryDirectory directory_;
  const std::string output_ = directory_ / "output";
  pid_t pid_ = -1;
};

}  // namespace longspan::testing
