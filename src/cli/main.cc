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

#include "bench/bench.h"
#include "cli/help.h"
#include "cli/run_config.h"
#include "core/check.h"
#include "core/names.h"
#include "core/output.h"
#include "train/job.h"
#include "train/trainer.h"

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

void TrainCommand(std::span<const std::string> arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") return Answer(TrainHelp());
    if (argument == "--help=markdown") return Answer(KeyReference());
  }
  const Job job = PrepareJob(LoadTrainConfig(arguments));
  Train(job, WriteRecipe(job.config));
}

void BenchCommand(std::span<const std::string> arguments) {
  for (const std::string& argument : arguments)
    if (argument == "--help" || argument == "-h") return Answer(bench::Help());
  bench::Run(arguments);
}

void RunCommand(std::span<const std::string> arguments) {
  static constexpr std::string_view kCommands[] = {"train", "bench", "help", "--help", "--version"};
  Require(ExitCode::kUsage, !arguments.empty(),
          "no command given; `longspan train` trains, `longspan --help` lists all");
  const std::string& command = arguments[0];
  if (command == "train") return TrainCommand(arguments.subspan(1));
  if (command == "bench") return BenchCommand(arguments.subspan(1));
  if (command == "help" || command == "--help" || command == "-h") return Answer(MainHelp());
  if (command == "--version") return Answer(fmt::format("longspan {}\n", LONGSPAN_VERSION));
  throw Error(fmt::format("unknown command '{}'{}", Shortened(command, kMaxShownBytes),
                          Suggestion(command, kCommands)),
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
