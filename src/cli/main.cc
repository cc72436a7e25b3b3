// The program: finds the command, and the one place that catches.
#include <cstdio>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/help.h"
#include "cli/run_config.h"
#include "core/check.h"
#include "core/names.h"
#include "train/job.h"
#include "train/trainer.h"

namespace longspan {
namespace {

void TrainCommand(std::span<const std::string> arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") return fmt::print("{}", TrainHelp());
    if (argument == "--help=markdown") return fmt::print("{}", KeyReference());
  }
  const Job job = PrepareJob(LoadTrainConfig(arguments));
  Train(job, WriteRecipe(job.config));
}

void RunCommand(std::span<const std::string> arguments) {
  static constexpr std::string_view kCommands[] = {"train", "help", "--help", "--version"};
  Require(ExitCode::kUsage, !arguments.empty(),
          "no command given; `longspan train` trains, `longspan --help` lists all");
  const std::string& command = arguments[0];
  if (command == "train") return TrainCommand(arguments.subspan(1));
  if (command == "help" || command == "--help" || command == "-h") return fmt::print("{}", MainHelp());
  if (command == "--version") return fmt::print("longspan {}\n", LONGSPAN_VERSION);
  throw Error(fmt::format("unknown command '{}'{}", command, Suggestion(command, kCommands)),
              ExitCode::kUsage);
}

int Fail(ExitCode code, std::string_view message) {
  std::fflush(stdout);
  fmt::print(stderr, "longspan: error: {}\n", message);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  using namespace longspan;
  try {
    RunCommand(std::vector<std::string>(argv + 1, argv + argc));
    return static_cast<int>(ExitCode::kOk);
  } catch (const Error& error) {
    return Fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return Fail(ExitCode::kResource,
                "memory ran out; use more ranks, a shorter max_target_length or a smaller model");
  } catch (const std::exception& error) {
    return Fail(ExitCode::kInternal,
                fmt::format("{}; this is a fault of longspan, please report it", error.what()));
  }
}
