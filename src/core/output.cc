#include "core/output.h"

#include <cerrno>
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
  if (!Print(text))
    throw Error(fmt::format("cannot write to standard output: {}", std::strerror(errno)),
                ExitCode::kResource);
}

void Show(std::string_view text) { Print(text); }

}  // namespace longspan
