// How long messages take between the ranks of a machine, by where the ranks lie.
//
// Torus: the chips of all ranks, in their order, fill a box whose sides are as equal as they can be, x first.
// A side of at least four is a ring, a shorter one a line. A group uses the sides along which its chips
// differ; where others of its kind lie between them, their messages share the links. Islands: consecutive
// ranks share one, with fast links between all of them; each rank has a link of its own to a slower network
// between islands.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/work.h"
#include "plan/hardware.h"

namespace longspan {

// What the time of a group's messages follows from.
struct GroupShape {
  int size = 1;
  int chips = 1;                         // torus: different ones
  std::array<int, 3> sides = {1, 1, 1};  // torus: different coordinates along each
  std::array<bool, 3> rings = {};        // torus: all of a side that is a ring
  std::array<int, 3> gaps = {1, 1, 1};   // torus: along each, from one of its chips to the next
  int on_island = 1;                     // islands: ranks of the group on one of them
};

class Topology {
 public:
  // `hardware` outlives it.
  Topology(const Hardware& hardware, int num_ranks);

  std::array<int, 3> sides() const { return sides_; }
  GroupShape ShapeOf(std::span<const int> ranks) const;
  // Of one message or collective of a group, from its begin to its end, alone on the links.
  double Seconds(const Work& work, const GroupShape& group) const;

 private:
  double TorusSeconds(const Work& work, const GroupShape& group) const;
  double IslandSeconds(const Work& work, const GroupShape& group) const;

  const Hardware& hardware_;
  std::array<int, 3> sides_ = {1, 1, 1};
};

}  // namespace longspan
