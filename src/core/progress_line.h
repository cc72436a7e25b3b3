// How far a long task is: on standard error, for a person who waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace longspan {

// On a terminal one line that is written over, some times a second, and gone at the end; elsewhere (a log) a
// line now and then. A task of less than a second shows nothing.
class ProgressLine {
 public:
  ProgressLine(std::string task, int64_t total_bytes);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Update(int64_t done_bytes);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string task_;
  const int64_t total_bytes_;
  const bool is_terminal_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_;
  bool is_shown_ = false;
};

// "reading x: 12.5 of 50.0 MB, 6.3 MB/s, 0:06 left"; what the line says after `seconds`.
std::string ProgressText(const std::string& task, int64_t done_bytes, int64_t total_bytes, double seconds);

}  // namespace longspan
