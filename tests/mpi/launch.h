// Programs on several processes, as the MPI that was found starts them.
#pragma once

#include <string>

#include "support/program.h"

namespace longspan::testing {

// `command`: words of a shell command line, in which $longspan is the program. Output and error together.
inline ProgramResult Launch(int processes, const std::string& command) {
  return RunShell(fmt::format("{} {} {} 2>&1 </dev/null", LONGSPAN_MPIEXEC, processes, command));
}

inline int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

}  // namespace longspan::testing
