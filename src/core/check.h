// Errors that a person, a file or a machine can cause (Require → Error) and broken invariants (CHECK).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace longspan {

// What the process ends with; docs/reference/exit-codes.md is the same table.
enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,  // a broken invariant of ours, or a mesh that differs from one rank: please report
  kUsage = 2,     // command line or configuration
  kInput = 3,     // a file, a model or a text that cannot be used
  kResource = 4,  // memory, disk or a permission ran out
  kPeer = 5,      // another rank failed first; its own error is the one printed
  kStopped = 6,   // a signal asked a run to end, and it has saved what it did; no error
};

// An error with a message made for the person who can mend it: what, where, got, wanted, what to do.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::kInput)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Thrown out of waits on a rank whose peer failed. Whoever collects the ranks' errors prefers any other.
class PeerFailed : public Error {
 public:
  explicit PeerFailed(const std::string& message) : Error(message, ExitCode::kPeer) {}
};

// Throws Error with exit code kInput unless `ok`. The message is formatted only on failure.
template <class... Args>
void Require(bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]]
    throw Error(fmt::format(message, std::forward<Args>(args)...));
}

// The same with an exit code, first of all kUsage for what the command line or a recipe says.
template <class... Args>
void Require(ExitCode code, bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]]
    throw Error(fmt::format(message, std::forward<Args>(args)...), code);
}

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  throw std::logic_error(fmt::format("internal error: {} does not hold at {}:{}", condition, file, line));
}

}  // namespace longspan

// A broken invariant of ours. Always on; for checks in hot loops use DCHECK.
#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::longspan::CheckFailed(__FILE__, __LINE__, #condition))

#ifdef LONGSPAN_CHECKS
#define DCHECK(condition) CHECK(condition)
#else
#define DCHECK(condition) static_cast<void>(0)
#endif
