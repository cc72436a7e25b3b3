// The program: finds the command, and the one place that catches.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/help.h"
#include "core/check.h"
#include "core/names.h"
#include "core/output.h"

namespace longspan {
namespace {

// A file that is opened takes the lowest free number: that of a standard stream that is closed, and then also
// what is printed there.
void OpenStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    Require(ExitCode::kResource, fcntl(fd, F_GETFD) >= 0 || open("/dev/null", O_RDWR) == fd,
            "standard stream {} is closed and /dev/null cannot be opened: {}", fd, std::strerror(errno));
}

// Reaching the limit on file sizes, or writing to a pipe that nobody reads, is then an error of the write.
void IgnoreSignalsOfWrites() {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

constexpr size_t kMaxShownBytes = 200;  // of an unknown command

void RunCommand(std::span<const std::string> arguments) {
  Require(ExitCode::kUsage, !arguments.empty(),
          "no command given; `longspan train` trains, `longspan --help` lists all");
  const std::string& name = arguments[0];
  if (name == "help" || name == "--help" || name == "-h") return Answer(MainHelp());
  if (name == "--version") return Answer(fmt::format("longspan {}\n", LONGSPAN_VERSION));
  std::vector<std::string_view> names = {"help", "--help", "--version"};
  for (const Command& command : Commands()) {
    if (command.name == name) return command.run(arguments.subspan(1));
    names.push_back(command.name);
  }
  throw Error(fmt::format("unknown command '{}'{}", Shortened(name, kMaxShownBytes), Suggestion(name, names)),
              ExitCode::kUsage);
}

// Throws nothing: standard error may be closed or full as well.
int Fail(ExitCode code, std::string_view message) {
  std::fflush(stdout);
  std::fputs(fmt::format("longspan: error: {}\n", OneLine(message)).c_str(), stderr);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  using namespace longspan;
  try {
    OpenStandardStreams();
    IgnoreSignalsOfWrites();
    RunCommand(std::vector<std::string>(argv + 1, argv + argc));
    return static_cast<int>(ExitCode::kOk);
  } catch (const Error& error) {
    return Fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return Fail(ExitCode::kResource,
                "memory ran out; use more ranks, a shorter max_target_length or a smaller model");
  } catch (const std::filesystem::filesystem_error& error) {
    return Fail(ExitCode::kResource, fmt::format("cannot use '{}': {}; check the path and its permissions",
                                                 error.path1().string(), error.code().message()));
  } catch (const std::exception& error) {
    return Fail(ExitCode::kInternal,
                fmt::format("{}; this is a fault of longspan, please report it", error.what()));
  }
}
