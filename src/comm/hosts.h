// The machines on which the ranks of a job run, where these are processes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace longspan {

struct Host {
  std::string name, cpu;   // as the system calls them
  std::vector<int> ranks;  // of the job, on this host; not empty
  int num_cores = 0;       // that these may use together
  int all_cores = 0;       // that the host has
  int64_t memory = 0;      // bytes

  int num_ranks() const { return static_cast<int>(ranks.size()); }
  friend bool operator==(const Host&, const Host&) = default;
};

// In the order of their first ranks. Collective.
std::vector<Host> FindHosts(Comm& world);
const Host& HostOf(std::span<const Host> hosts, int rank);
// How many there would be if all had as many ranks as the fullest: all of them where ranks are spread evenly.
int NumFullHosts(std::span<const Host> hosts);

// What a person should know of them, a line or several: how many there are and what they have, each by itself
// if they differ, as all ranks wait for the slowest.
std::vector<std::string> DescribeHosts(std::span<const Host> hosts);

}  // namespace longspan
