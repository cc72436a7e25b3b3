// Runs the longspan program itself, for tests of what a person sees and what a run leaves on disk.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/check.h"

namespace longspan::testing {

struct ProgramResult {
  int exit_code = -1;
  std::string output;  // standard output and error together
};

// `arguments` are words of a shell command line.
inline ProgramResult RunProgram(const std::string& arguments) {
  const std::string command = fmt::format("'{}' {} 2>&1 </dev/null", LONGSPAN_PROGRAM, arguments);
  FILE* pipe = popen(command.c_str(), "r");
  CHECK(pipe != nullptr);
  ProgramResult result;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// A directory of its own for one test, removed with everything in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "longspan-test-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The lines of a metrics.jsonl, in order.
inline std::vector<nlohmann::json> ReadMetrics(const std::string& run_directory) {
  std::ifstream file(run_directory + "/metrics.jsonl");
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

}  // namespace longspan::testing
