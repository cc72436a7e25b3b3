#include "comm/hosts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/thread_comm.h"
#include "core/machine.h"

namespace longspan {
namespace {

Host HostWith(const std::string& name, const std::vector<int>& ranks, int num_cores = 8) {
  return {.name = name,
          .cpu = "a CPU",
          .ranks = ranks,
          .num_cores = num_cores,
          .all_cores = 8,
          .memory = int64_t{16} << 30};
}

TEST(Hosts, RanksOfThisMachineShareIt) {
  RunThreadRanks(3, [](Comm& comm) {
    const std::vector<Host> hosts = FindHosts(comm);
    ASSERT_EQ(hosts.size(), 1u);
    EXPECT_FALSE(hosts[0].name.empty());
    EXPECT_EQ(hosts[0].ranks, (std::vector{0, 1, 2}));
    EXPECT_EQ(hosts[0].num_cores, NumCores());
    EXPECT_EQ(hosts[0].memory, PhysicalMemory());
    EXPECT_EQ(&HostOf(hosts, 2), &hosts[0]);
  });
}

TEST(Hosts, ARankIsFoundOnItsHost) {
  const std::vector<Host> hosts = {HostWith("a", {0, 2}), HostWith("b", {1, 3})};
  EXPECT_EQ(HostOf(hosts, 2).name, "a");
  EXPECT_EQ(HostOf(hosts, 3).name, "b");
}

TEST(Hosts, TheFullestCounts) {
  EXPECT_EQ(NumFullHosts({}), 1);
  EXPECT_EQ(NumFullHosts(std::vector{HostWith("a", {0, 1, 2})}), 1);
  EXPECT_EQ(NumFullHosts(std::vector{HostWith("a", {0, 1}), HostWith("b", {2, 3})}), 2);
  EXPECT_EQ(NumFullHosts(std::vector{HostWith("a", {0, 1, 2}), HostWith("b", {3})}), 1);
}

TEST(Hosts, AreDescribedTogetherIfTheyAreAlike) {
  EXPECT_EQ(DescribeHosts(std::vector{HostWith("a", {0, 1}), HostWith("b", {2, 3})}),
            std::vector<std::string>{"2 hosts, 2 ranks on 8 cores, 16.0 GiB, a CPU: a, b"});
  EXPECT_EQ(
      DescribeHosts(std::vector{HostWith("a", {0}), HostWith("b", {1}, 1)}),
      (std::vector<std::string>{"2 hosts that differ; all ranks wait for the slowest",
                                "a: 1 rank on 8 cores, 16.0 GiB, a CPU",
                                "b: 1 rank on 1 of its 8 cores (the launcher's binding), 16.0 GiB, a CPU"}));
}

}  // namespace
}  // namespace longspan
