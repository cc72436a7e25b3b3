#include "plan/topology.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/check.h"

namespace longspan {
namespace {

constexpr int kShortestRing = 4;

// n as a product of three numbers, ascending, of which the largest is as small as can be, then the next.
std::array<int, 3> MostEqualSides(int n) {
  std::array<int, 3> best = {1, 1, n};
  for (int a = 1; a * a * a <= n; ++a) {
    if (n % a != 0) continue;
    for (int b = a; a * b * b <= n; ++b) {
      if (n / a % b != 0) continue;
      const std::array<int, 3> sides = {a, b, n / a / b};
      if (std::pair(sides[2], sides[1]) < std::pair(best[2], best[1])) best = sides;
    }
  }
  return best;
}

// Between neighbours; 1 where there is but one.
int SmallestGap(const std::set<int>& coordinates) {
  int gap = 0, last = 0;
  for (const int coordinate : coordinates) {
    if (coordinate != *coordinates.begin() && (gap == 0 || coordinate - last < gap)) gap = coordinate - last;
    last = coordinate;
  }
  return std::max(gap, 1);
}

}  // namespace

Topology::Topology(const Hardware& hardware, int num_ranks) : hardware_(hardware) {
  const int per_chip = static_cast<int>(hardware.ranks_per_chip);
  sides_ = MostEqualSides((num_ranks + per_chip - 1) / per_chip);
}

GroupShape Topology::ShapeOf(std::span<const int> ranks) const {
  GroupShape shape;
  shape.size = static_cast<int>(ranks.size());
  std::set<int> chips;
  std::array<std::set<int>, 3> coordinates;
  std::map<int64_t, int> islands;
  for (const int rank : ranks) {
    int rest = rank / static_cast<int>(hardware_.ranks_per_chip);
    chips.insert(rest);
    for (size_t axis = 0; axis < 3; ++axis) {
      coordinates[axis].insert(rest % sides_[axis]);
      rest /= sides_[axis];
    }
    shape.on_island = std::max(shape.on_island, ++islands[rank / hardware_.island_ranks]);
  }
  shape.chips = static_cast<int>(chips.size());
  for (size_t axis = 0; axis < 3; ++axis) {
    shape.sides[axis] = static_cast<int>(coordinates[axis].size());
    shape.rings[axis] = shape.sides[axis] == sides_[axis] && sides_[axis] >= kShortestRing;
    shape.gaps[axis] = SmallestGap(coordinates[axis]);
  }
  return shape;
}

double Topology::Seconds(const Work& work, const GroupShape& group) const {
  CHECK(LaneOf(work.kind) == Lane::kLink);
  if (group.size == 1) return 0;
  return hardware_.topology == "torus" ? TorusSeconds(work, group) : IslandSeconds(work, group);
}

// Bytes are what a rank sends to others in all: (g − 1) pieces of n.
double Topology::TorusSeconds(const Work& work, const GroupShape& group) const {
  const double link = hardware_.link_gbps * 1e9, bytes = static_cast<double>(work.bytes);
  const double latency = hardware_.message_us * 1e-6;
  if (group.chips == 1) return latency + bytes / (hardware_.chip_gbps * 1e9);
  const double per_chip = static_cast<double>(group.size) / group.chips;
  switch (work.kind) {
    case WorkKind::kSend:
    case WorkKind::kRecv:
      // Groups are walked from neighbour to neighbour. Where a chip has several of its ranks, all but the
      // last of them hand on inside, and who waits for whom is set by the link.
      return latency + bytes * *std::ranges::max_element(group.gaps) / link;
    case WorkKind::kAllGather:
    case WorkKind::kReduceScatter: {
      // All sides at once, both ways round a ring; each chip takes in the pieces of all other chips.
      double bandwidth = 0;
      int hops = 0;
      for (size_t axis = 0; axis < 3; ++axis) {
        if (group.sides[axis] == 1) continue;
        bandwidth += (group.rings[axis] ? 2 * link : link) / group.gaps[axis];
        hops += group.rings[axis] ? group.sides[axis] / 2 : group.sides[axis] - 1;
      }
      const double piece = bytes / (group.size - 1);
      return latency * hops + piece * per_chip * (group.chips - 1) / bandwidth;
    }
    case WorkKind::kAllToAll: {
      // What a chip has crosses a quarter of a ring's links on the way, or a third of a line's; the middle of
      // the longest side binds: side/8 of it a link of a ring, side/4 of a line.
      const double whole = bytes * group.size / (group.size - 1) * per_chip;
      double seconds = 0;
      for (size_t axis = 0; axis < 3; ++axis) {
        if (group.sides[axis] == 1) continue;
        seconds = std::max(
            seconds, whole * group.sides[axis] * group.gaps[axis] / ((group.rings[axis] ? 8 : 4) * link));
      }
      return latency * (group.size - 1) + seconds;
    }
    default:
      CHECK(false);
      return 0;
  }
}

double Topology::IslandSeconds(const Work& work, const GroupShape& group) const {
  const double island = hardware_.link_gbps * 1e9, network = hardware_.network_gbps * 1e9;
  const double bytes = static_cast<double>(work.bytes), latency = hardware_.message_us * 1e-6;
  const bool leaves = group.size > group.on_island;
  switch (work.kind) {
    case WorkKind::kSend:
    case WorkKind::kRecv:  // of a ring that leaves the island the link that does so binds
      return latency + bytes / (leaves ? network : island);
    case WorkKind::kAllGather:
    case WorkKind::kReduceScatter: {
      // The ranks of an island bring in, or sum, each a part of what lies outside, and share it inside.
      const double piece = bytes / (group.size - 1);
      const double outside = piece * (group.size - group.on_island) / group.on_island;
      return latency * (group.size / group.on_island + group.on_island - 1) +
             std::max(bytes / island, leaves ? outside / network : 0);
    }
    case WorkKind::kAllToAll: {
      const double piece = bytes / (group.size - 1);
      return latency * (group.size - 1) +
             std::max(piece * (group.on_island - 1) / island,
                      leaves ? piece * (group.size - group.on_island) / network : 0);
    }
    default:
      CHECK(false);
      return 0;
  }
}

}  // namespace longspan
