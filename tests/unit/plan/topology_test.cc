#include "plan/topology.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace longspan {
namespace {

constexpr int64_t kGB = 1'000'000'000;

Hardware Torus(int ranks_per_chip = 1) {
  Hardware hardware;
  hardware.topology = "torus";
  hardware.ranks_per_chip = ranks_per_chip;
  hardware.link_gbps = 100;
  hardware.chip_gbps = 500;
  return hardware;
}

Hardware Islands() {
  Hardware hardware;
  hardware.link_gbps = 400;
  hardware.island_ranks = 8;
  hardware.network_gbps = 50;
  return hardware;
}

std::vector<int> Ranks(int n, int stride = 1) {
  std::vector<int> ranks(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) ranks[static_cast<size_t>(i)] = i * stride;
  return ranks;
}

double Seconds(const Topology& topology, WorkKind kind, int64_t bytes, const std::vector<int>& ranks) {
  Work work;
  work.kind = kind;
  work.bytes = bytes;
  return topology.Seconds(work, topology.ShapeOf(ranks));
}

TEST(TopologyTest, ChipsFillABoxWithEqualSides) {
  const Hardware torus = Torus(), cores = Torus(2);
  EXPECT_EQ(Topology(torus, 64).sides(), (std::array{4, 4, 4}));
  EXPECT_EQ(Topology(cores, 128).sides(), (std::array{4, 4, 4}));
  EXPECT_EQ(Topology(torus, 32).sides(), (std::array{2, 4, 4}));
  EXPECT_EQ(Topology(torus, 16).sides(), (std::array{2, 2, 4}));
  EXPECT_EQ(Topology(torus, 7).sides(), (std::array{1, 1, 7}));
  EXPECT_EQ(Topology(torus, 1).sides(), (std::array{1, 1, 1}));
}

TEST(TopologyTest, AGroupUsesTheSidesAlongWhichItsChipsDiffer) {
  const Hardware torus = Torus();
  const Topology topology(torus, 64);
  const GroupShape row = topology.ShapeOf(Ranks(4));
  EXPECT_EQ(row.sides, (std::array{4, 1, 1}));
  EXPECT_EQ(row.rings, (std::array{true, false, false}));
  const GroupShape eight = topology.ShapeOf(Ranks(8));
  EXPECT_EQ(eight.sides, (std::array{4, 2, 1}));
  EXPECT_EQ(eight.rings, (std::array{true, false, false}));  // half a side is a line
  EXPECT_EQ(topology.ShapeOf(Ranks(4, 16)).sides, (std::array{1, 1, 4}));
  EXPECT_EQ(topology.ShapeOf(Ranks(64)).chips, 64);
}

TEST(TopologyTest, TorusTimes) {
  const Hardware torus = Torus();
  const Topology topology(torus, 64);
  // One link, one way.
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kSend, kGB, Ranks(64)), 0.01);
  // 63 pieces come in over six links.
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllGather, 63 * kGB, Ranks(64)), 63 / 600.0);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kReduceScatter, 3 * kGB, Ranks(4)), 3 / 200.0);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllGather, 7 * kGB, Ranks(8)), 7 / 300.0);
  // A ring of four: a piece for the rank opposite goes two links, half of those each way: 4 GB · 4 / 8 a
  // link.
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllToAll, 3 * kGB, Ranks(4)), 4.0 * 4 / 8 / 100);
  // Two chips beside each other: half of what each has crosses the one link.
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllToAll, kGB, Ranks(2)), 1 / 100.0);
  EXPECT_EQ(Seconds(topology, WorkKind::kAllToAll, 0, Ranks(1)), 0);
  // Every second chip of a row: the groups of both halves hand on over the same links, each message over two.
  EXPECT_EQ(topology.ShapeOf(Ranks(32, 2)).gaps, (std::array{2, 1, 1}));
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kSend, kGB, Ranks(32, 2)), 0.02);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kSend, kGB, Ranks(16, 4)), 0.01);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllGather, kGB, Ranks(2, 2)), 0.02);
}

TEST(TopologyTest, RanksOfAChipShareItsLinks) {
  const Hardware cores = Torus(2);
  const Topology topology(cores, 128);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kSend, kGB, Ranks(2)), 1 / 500.0);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kSend, kGB, Ranks(128)), 1 / 100.0);
  // Each of 64 chips takes in two pieces of every other.
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllGather, 127 * kGB, Ranks(128)), 2 * 63 / 600.0);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllGather, 63 * kGB, Ranks(64, 2)), 63 / 600.0);
}

TEST(TopologyTest, IslandTimes) {
  const Hardware islands = Islands();
  const Topology topology(islands, 64);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kSend, kGB, Ranks(8)), 1 / 400.0);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kSend, kGB, Ranks(16)), 1 / 50.0);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllGather, 7 * kGB, Ranks(8)), 7 / 400.0);
  // Eight pieces of the other island, one through each rank's link.
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllGather, 15 * kGB, Ranks(16)), 15 / 400.0);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllGather, 7 * kGB, Ranks(8, 8)), 7 / 50.0);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllToAll, 15 * kGB, Ranks(16)), 8 / 50.0);
  EXPECT_DOUBLE_EQ(Seconds(topology, WorkKind::kAllToAll, 7 * kGB, Ranks(8)), 7 / 400.0);
}

TEST(TopologyTest, LatencyByTheStepsOfACollective) {
  Hardware torus = Torus(), islands = Islands();
  torus.message_us = islands.message_us = 1e6;
  const Topology t(torus, 64), i(islands, 64);
  EXPECT_DOUBLE_EQ(Seconds(t, WorkKind::kAllGather, 63, Ranks(64)), 6 + 63 / 600e9);  // two hops a side
  EXPECT_DOUBLE_EQ(Seconds(t, WorkKind::kAllToAll, 3, Ranks(4)), 3 + 2 / 100e9);
  EXPECT_DOUBLE_EQ(Seconds(i, WorkKind::kSend, 4, Ranks(4)), 1 + 4 / 400e9);
}

}  // namespace
}  // namespace longspan
