#include "eval/task.h"

#include <algorithm>

#include "core/check.h"
#include "core/names.h"

namespace longspan {
namespace {

constexpr TaskRow kTasks[] = {
    {"needle", "RULER's single needle: a number in one sentence among noise", false, MakeNeedle},
    {"variable_tracking",
     "RULER's variable tracking: which variables have a value, directly or through others", false,
     MakeVariableTracking},
    {"key_value", "the value of a key of a JSON object (lost in the middle)", true, MakeKeyValue},
    {"bible", "the verse at an address, in a text with an address on every line", true, MakeBible},
};

}  // namespace

std::vector<int64_t> Draws::Distinct(int64_t count, int64_t bound) {
  CHECK(0 <= count && count <= bound);
  // Floyd's: one draw for each, whatever the bound; then their order is drawn.
  std::vector<int64_t> chosen;
  for (int64_t last = bound - count; last < bound; ++last) {
    const int64_t drawn = Below(last + 1);
    chosen.push_back(std::ranges::find(chosen, drawn) == chosen.end() ? drawn : last);
  }
  for (size_t n = chosen.size(); n > 1; --n)
    std::swap(chosen[n - 1], chosen[static_cast<size_t>(Below(static_cast<int64_t>(n)))]);
  return chosen;
}

std::span<const TaskRow> TaskTable() { return kTasks; }

const TaskRow& FindTask(std::string_view name) {
  std::vector<std::string_view> names;
  for (const TaskRow& row : kTasks) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  throw Error(fmt::format("there is no task '{}'{}", name, Suggestion(name, names)), ExitCode::kUsage);
}

}  // namespace longspan
