// The program: finds the command, and the one place that catches.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/help.h"
#include "comm/mpi_comm.h"
#include "core/check.h"
#include "core/launched.h"
#include "core/names.h"
#include "core/output.h"
#include "core/report_error.h"

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
  const auto command = std::ranges::find(Commands(), name, &Command::name);
  const bool is_command = command != Commands().end();
  const std::optional<int> rank = LaunchedRank();
  // Of several processes the first says what only one need say.
  if (rank.value_or(0) > 0 && !(is_command && command->takes_processes)) return;
  if (name == "help" || name == "--help" || name == "-h") return Answer(MainHelp());
  if (name == "--version") return Answer(fmt::format("longspan {}\n", LONGSPAN_VERSION));
  if (is_command) {
    Require(ExitCode::kUsage, !rank || command->takes_processes,
            "{} runs in one process; start it without mpirun, with ranks=N if it is to take several", name);
    return command->run(arguments.subspan(1));
  }
  std::vector<std::string_view> names = {"help", "--help", "--version"};
  for (const Command& known : Commands()) names.push_back(known.name);
  throw Error(fmt::format("unknown command '{}'{}", Shortened(name, kMaxShownBytes), Suggestion(name, names)),
              ExitCode::kUsage);
}

// The exit code; says what went wrong.
int Run(std::span<const std::string> arguments) {
  try {
    OpenStandardStreams();
    IgnoreSignalsOfWrites();
    RunCommand(arguments);
    return static_cast<int>(ExitCode::kOk);
  } catch (...) {
    const std::optional<int> rank = LaunchedRank();
    return ReportError(rank ? fmt::format("rank {}: ", *rank) : "");
  }
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  const int exit_code = longspan::Run(std::vector<std::string>(argv + 1, argv + argc));
  longspan::LeaveMpi(exit_code);
  return exit_code;
}
