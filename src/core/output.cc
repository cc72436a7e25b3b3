#include "core/output.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "core/check.h"

namespace longspan {
namespace {

bool Print(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

}  // namespace

void Answer(std::string_view text) {
  if (Print(text)) return;
  const int error = errno;
  if (error == EPIPE) {  // whoever asked has read enough: an end, without a word, as this signal's
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  throw Error(fmt::format("cannot write to standard output: {}", std::strerror(error)), ExitCode::kResource);
}

void Show(std::string_view text) { Print(text); }

}  // namespace longspan
