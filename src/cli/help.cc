#include "cli/help.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/run_config.h"
#include "core/check.h"
#include "model/config.h"
#include "model/remat_policy.h"
#include "parallel/strategy.h"

namespace longspan {
namespace {

constexpr size_t kWidth = 100;

// `text` in lines of at most kWidth columns, each indented.
std::string Wrapped(std::string_view text, size_t indent) {
  std::string out;
  size_t column = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (column > 0 && column + 1 + word.size() > kWidth) {
      out += '\n';
      column = 0;
    }
    out += column == 0 ? std::string(indent, ' ') : " ";
    out += word;
    column += (column == 0 ? indent : 1) + word.size();
    begin = end + 1;
  }
  return out + "\n";
}

std::string DefaultText(const Key& key) {
  if (key.required) return "required";
  return key.default_text.empty() ? "empty" : key.default_text;
}

// What a strategy is good for, or a policy keeps; the names alone say little.
template <class Row>
std::string SummaryLines(std::span<const Row> table, std::string_view format_of_line) {
  std::string lines;
  for (const Row& row : table) lines += fmt::format(fmt::runtime(format_of_line), row.name, row.summary);
  return lines;
}

std::string Synopsis(const Command& command) {
  return fmt::format("longspan {} {}", command.name, command.synopsis);
}

}  // namespace

bool WantsHelp(std::span<const std::string> arguments) {
  return std::ranges::any_of(arguments, [](const std::string& a) { return a == "--help" || a == "-h"; });
}

std::string MainHelp() {
  std::string text =
      "longspan trains language models on sequences far longer than one device can hold.\n"
      "\n"
      "Usage:\n";
  size_t width = 0;
  for (const Command& command : Commands()) width = std::max(width, Synopsis(command).size());
  for (const Command& command : Commands())
    text += fmt::format("  {:<{}}  {}\n", Synopsis(command), width, command.summary);
  text += fmt::format("  {:<{}}  what a command takes: keys with type, range, default, meaning\n",
                      "longspan COMMAND --help", width);
  return text +
         "  longspan --version\n"
         "  longspan --help\n"
         "\n"
         "Exit codes: 0 done, 1 internal error, 2 command line or recipe, 3 model, text or checkpoint,\n"
         "4 memory, disk or permission, 5 another rank failed first, 6 stopped by a signal, and saved.\n";
}

std::string CommandHelp(std::string_view command, std::string_view about, const KeyList& keys) {
  const auto row = std::ranges::find(Commands(), command, &Command::name);
  CHECK(row != Commands().end());
  return fmt::format("Usage: {}\n\n{}", Synopsis(*row), Wrapped(about, 0)) + KeyLines(keys);
}

std::string KeyLines(const KeyList& keys) {
  std::string text;
  std::string_view group;
  for (const Key& key : keys.keys()) {
    if (key.group != group) text += fmt::format("\n{}:\n", key.group);
    group = key.group;
    const auto [before, between] = key.is_option ? std::pair("--", ' ') : std::pair("", '=');
    text += fmt::format("  {}{}{}{}  [{}]\n", before, key.name, between, TypeName(key), DefaultText(key));
    std::string meaning(key.meaning);
    if (key.range.Limits()) meaning += fmt::format(" Wants {}.", Wanted(key));
    text += Wrapped(meaning, 6);
  }
  return text;
}

std::string TrainHelp() {
  TrainConfig defaults;
  return CommandHelp("train",
                     "Trains a model and leaves its configuration, metrics and checkpoints in "
                     "base_output_directory/run_name. RECIPE.yml is one flat YAML map of the keys below; "
                     "key=value goes before the recipe.",
                     TrainKeys(defaults)) +
         fmt::format("\nStrategies:\n{}", SummaryLines(StrategyTable(), "  {:<12}{}\n")) +
         fmt::format("\nPolicies (remat_policy), and what a layer keeps by them:\n{}",
                     SummaryLines(RematPolicyTable(), "  {:<28}{}\n")) +
         fmt::format("\nBuilt-in models: {}.\n", fmt::join(BuiltinModelNames(), ", ")) +
         "\n`longspan train --help=markdown` prints the keys as docs/reference/keys.md.\n";
}

std::string KeyReference() {
  std::string text =
      "# Keys of `longspan train`\n"
      "\n"
      "Written by `longspan train --help=markdown`; the list itself is `src/cli/run_config.cc`.\n"
      "A recipe is one flat YAML map of these keys; `key=value` on the command line goes before the "
      "recipe.\n";
  TrainConfig defaults;
  const KeyList list = TrainKeys(defaults);
  std::string_view group;
  for (const Key& key : list.keys()) {
    if (key.group != group)
      text += fmt::format("\n## {}\n\n| key | wants | default | meaning |\n|---|---|---|---|\n", key.group);
    group = key.group;
    const std::string value =
        key.required || key.default_text.empty() ? DefaultText(key) : fmt::format("`{}`", DefaultText(key));
    text += fmt::format("| `{}` | {} | {} | {} |\n", key.name, Wanted(key), value, key.meaning);
  }
  text += fmt::format("\n## Strategies\n\n{}", SummaryLines(StrategyTable(), "- `{}`: {}\n"));
  text += fmt::format("\n## Policies\n\nBy `remat_policy`, a layer keeps for its backward pass\n\n{}",
                      SummaryLines(RematPolicyTable(), "- `{}`: {}\n"));
  text += fmt::format("\n## Built-in models\n\n`{}`\n", fmt::join(BuiltinModelNames(), "`, `"));
  return text;
}

}  // namespace longspan
