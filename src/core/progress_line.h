// How far a long task is: on standard error, for a person who waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace longspan {

// What is counted: how many of it one shown unit is, and what that is called.
struct ProgressUnit {
  double size;
  std::string_view name;
};
inline constexpr ProgressUnit kMegabytes = {1e6, "MB"}, kKiloTokens = {1024, "K tokens"};

// On a terminal one line that is written over, some times a second, and gone at the end; elsewhere (a log) a
// line now and then. A task of less than a second shows nothing, nor does any but the first of the processes
// that an MPI launcher has started.
class ProgressLine {
 public:
  ProgressLine(std::string task, ProgressUnit unit, int64_t total);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Update(int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string task_;
  const ProgressUnit unit_;
  const int64_t total_;
  const bool is_terminal_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_;
  bool is_shown_ = false;
};

// "reading x: 12.5 of 50.0 MB, 6.3 MB/s, 0:06 left"; what the line says after `seconds`.
std::string ProgressText(const std::string& task, ProgressUnit unit, int64_t done, int64_t total,
                         double seconds);

}  // namespace longspan
