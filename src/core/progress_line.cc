#include "core/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/launched.h"
#include "core/names.h"

namespace longspan {
namespace {

constexpr std::chrono::milliseconds kFirst{1000}, kOnTerminal{200}, kInLog{30000};

// 65 → "1:05", 3665 → "1:01:05".
std::string Duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace

std::string ProgressText(const std::string& task, ProgressUnit unit, int64_t done, int64_t total,
                         double seconds) {
  const double done_units = static_cast<double>(done) / unit.size;
  const double total_units = static_cast<double>(total) / unit.size;
  std::string text = fmt::format("{}: {:.1f} of {:.1f} {}, {:.1f} {}/s", task, done_units, total_units,
                                 unit.name, done_units / std::max(seconds, 1e-3), unit.name);
  if (done > 0)
    text +=
        fmt::format(", {} left", Duration(std::max(0.0, total_units - done_units) / done_units * seconds));
  return OneLine(text);
}

ProgressLine::ProgressLine(std::string task, ProgressUnit unit, int64_t total)
    : task_(std::move(task)),
      unit_(unit),
      total_(total),
      is_terminal_(isatty(STDERR_FILENO) != 0),
      next_(LaunchedRank().value_or(0) > 0 ? Clock::time_point::max()
                                           : begin_ + (is_terminal_ ? kFirst : kInLog)) {}

ProgressLine::~ProgressLine() {
  if (is_shown_ && is_terminal_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::Update(int64_t done) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (is_terminal_ ? kOnTerminal : kInLog);
  is_shown_ = true;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const std::string text = ProgressText(task_, unit_, done, total_, seconds);
  std::fputs(is_terminal_ ? fmt::format("\r{}\033[K", text).c_str() : (text + "\n").c_str(), stderr);
}

}  // namespace longspan
