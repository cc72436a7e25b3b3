#include "parallel/strategy.h"

#include <algorithm>

#include "core/check.h"
#include "core/names.h"

namespace longspan {
namespace {

std::unique_ptr<AttentionStrategy> AllGatherOf(Mesh& mesh) { return MakeAllGather(*mesh.context); }
std::unique_ptr<AttentionStrategy> RingOf(Mesh& mesh) { return MakeRing(*mesh.context); }
std::unique_ptr<AttentionStrategy> UspOf(Mesh& mesh) {
  return MakeUsp(*mesh.ulysses, mesh.shape.ring, MakeRing(*mesh.ring));
}
// USP whose ring has one member. All ranks of a sequence take part, whatever the mesh: other layers may have
// a ring.
std::unique_ptr<AttentionStrategy> UlyssesOf(Mesh& mesh) {
  return MakeUsp(*mesh.context, /*num_ring=*/1, MakeRing(*mesh.self));
}

constexpr StrategyRow kStrategies[] = {
    {"all_gather", "gathers all keys and values on every rank; for short sequences or few KV heads",
     AllGatherOf},
    {"ring", "keys and values travel round while the block before is computed; for long sequences", RingOf},
    {"ulysses", "all-to-all from sequence shards to head shards and back; for many heads", UlyssesOf},
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
