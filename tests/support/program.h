// Runs the longspan program itself, for tests of what a person sees and what a run leaves on disk.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "core/check.h"

namespace longspan::testing {

struct ProgramResult {
  int exit_code = -1;
  std::string output;  // standard output and error together
};

// What a shell says and ends in; in `command_line`, $longspan is the program.
inline ProgramResult RunShell(const std::string& command_line) {
  const std::string command = fmt::format("longspan='{}'; {}", LONGSPAN_PROGRAM, command_line);
  FILE* pipe = popen(command.c_str(), "r");
  CHECK(pipe != nullptr);
  ProgramResult result;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// `arguments` are words of a shell command line.
inline ProgramResult RunProgram(const std::string& arguments) {
  return RunShell(fmt::format("\"$longspan\" {} 2>&1 </dev/null", arguments));
}

}  // namespace longspan::testing
