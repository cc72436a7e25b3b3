#include "comm/operation_name.h"

#include <fmt/format.h>

#include <algorithm>

namespace longspan {

std::string Describe(const OperationName& name) {
  const std::string step = name.step > 0 ? fmt::format(" (step {})", name.step) : "";
  if (name.kind == WorkKind::kSend) return fmt::format("send to rank {}{}", name.peer, step);
  if (name.kind == WorkKind::kRecv) return fmt::format("recv from rank {}{}", name.peer, step);
  return fmt::format("{} of {}{}", Name(name.kind), RanksText(*name.ranks), step);
}

std::string RanksText(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::vector<std::string> parts;  // a rank, or at least three that follow each other
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;
    parts.push_back(end == i + 1 ? fmt::format("{}", ranks[i])
                                 : fmt::format("{}–{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

Verdict WaitedInVain(const OperationName& name, double seconds, const std::vector<int>& ranks,
                     const std::string& why) {
  return {
      fmt::format("{} has waited {:.3g} s for {}: {}; see what holds up that process (a disk, a network, a "
                  "stop), or raise failure_timeout if it may do nothing for so long; resume=auto goes on "
                  "from the last checkpoint",
                  Describe(name), seconds, RanksText(ranks), why),
      ExitCode::kPeer};
}

Verdict CallsDisagree(const OperationName& name, double seconds, int rank, const std::string& other) {
  return {
      fmt::format("{} has waited {:.3g} s for rank {}, which waits in {}; their calls are not in the same "
                  "order: this is a fault of longspan, please report it",
                  Describe(name), seconds, rank, other),
      ExitCode::kInternal};
}

std::string StillWaits(const OperationName& name, double seconds, const std::vector<int>& ranks) {
  return fmt::format("{} has waited {:.3g} s for {}, which {} not idle: the run goes on (said once)",
                     Describe(name), seconds, RanksText(ranks), ranks.size() == 1 ? "is" : "are");
}

}  // namespace longspan
