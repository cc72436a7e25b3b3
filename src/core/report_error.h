// Errors as a person sees them: a line on standard error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/check.h"

namespace longspan {

// An error of one rank of a run, in a step; the message is the error's own.
class RankError : public Error {
 public:
  RankError(const std::string& message, ExitCode code, int rank, int64_t step)
      : Error(message, code), rank_(rank), step_(step) {}
  int rank() const { return rank_; }
  int64_t step() const { return step_; }

 private:
  int rank_;
  int64_t step_;
};

// Throws the exception that is being handled as a RankError. PeerFailed stays what it is.
[[noreturn]] void RethrowWithPlace(int rank, int64_t step);

// Says the exception that is being handled, "longspan: rank 2: step 17: error: …"; what has an empty message
// has been said. Returns the exit code. `process`: which of several this is, "rank 2: ", or nothing. Throws
// nothing: standard error may be closed or full as well.
int ReportError(const std::string& process);

// Says something else on standard error, in a line: "longspan: …".
void Remark(const std::string& text);

}  // namespace longspan
