#include "parallel/strategy.h"

#include <algorithm>

#include "core/check.h"
#include "core/names.h"

namespace longspan {
namespace {

std::unique_ptr<AttentionStrategy> AllGatherOf(Mesh& mesh) { return MakeAllGather(*mesh.context); }
std::unique_ptr<AttentionStrategy> RingOf(Mesh& mesh) { return MakeRing(*mesh.context); }
// Ulysses is USP whose ring has one member.
std::unique_ptr<AttentionStrategy> UspOf(Mesh& mesh) {
  return MakeUsp(*mesh.ulysses, mesh.shape.ring, MakeRing(*mesh.ring));
}

constexpr StrategyRow kStrategies[] = {
    {"all_gather", "gathers all keys and values on every rank; for short sequences or few KV heads",
     AllGatherOf},
    {"ring", "keys and values travel round while the block before is computed; for long sequences", RingOf},
    {"ulysses", "all-to-all from sequence shards to head shards and back; for many heads", UspOf},
    {"usp", "ulysses inside (fast links), ring outside; for more ranks than heads", UspOf},
};

}  // namespace

std::span<const StrategyRow> StrategyTable() { return kStrategies; }

const StrategyRow& FindStrategy(std::string_view name) {
  std::vector<std::string_view> names;
  for (const StrategyRow& row : kStrategies) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  throw Error(fmt::format("there is no context_parallel_strategy '{}'{}", name, Suggestion(name, names)),
              ExitCode::kUsage);
}

}  // namespace longspan
