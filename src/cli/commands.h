// The commands of `longspan`. One more is a function here, a row in Commands() and a page in docs/reference.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace longspan {

struct Command {
  std::string_view name;                                // "train"
  std::string_view synopsis;                            // what follows it: "[RECIPE.yml] [key=value ...]"
  std::string_view summary;                             // for the list of commands
  void (*run)(std::span<const std::string> arguments);  // those behind the name; throws Error
  bool takes_processes = false;  // an MPI launcher may start several, each of which is a rank
};
std::span<const Command> Commands();  // in the order in which they are shown

}  // namespace longspan
