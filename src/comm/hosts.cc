#include "comm/hosts.h"

#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/format.h"
#include "core/machine.h"

namespace longspan {
namespace {

// What a rank tells the others of where it runs.
struct Card {
  char name[256] = {}, cpu[128] = {};
  cpu_set_t cores;
  int64_t all_cores = 0, memory = 0;
};

Card MyCard() {
  Card card;
  gethostname(card.name, sizeof card.name - 1);
  CpuModel().copy(card.cpu, sizeof card.cpu - 1);
  CPU_ZERO(&card.cores);
  if (sched_getaffinity(0, sizeof card.cores, &card.cores) != 0)  // more of them than the set holds
    for (int core = 0; core < std::min(NumCores(), CPU_SETSIZE); ++core) CPU_SET(core, &card.cores);
  card.all_cores = sysconf(_SC_NPROCESSORS_ONLN);
  card.memory = PhysicalMemory();
  return card;
}

Tensor BytesOf(std::vector<Card>& cards) {
  return Tensor(cards.data(), DType::kByte, {static_cast<int64_t>(cards.size() * sizeof(Card))});
}

// What a host has for its ranks. A launcher may bind them to fewer cores than a person thinks.
std::string Means(const Host& host) {
  const std::string cores = host.num_cores >= host.all_cores
                                ? Plural(host.num_cores, "core")
                                : fmt::format("{} of its {} (the launcher's binding)", host.num_cores,
                                              Plural(host.all_cores, "core"));
  return fmt::format("{} on {}, {}, {}", Plural(host.num_ranks(), "rank"), cores, FormatBytes(host.memory),
                     host.cpu);
}

}  // namespace

std::vector<Host> FindHosts(Comm& world) {
  std::vector<Card> mine = {MyCard()}, cards(static_cast<size_t>(world.size()));
  world.AllGather(BytesOf(mine), BytesOf(cards)).Wait();
  std::vector<Host> hosts;
  std::vector<cpu_set_t> cores;  // of each host
  for (int rank = 0; rank < world.size(); ++rank) {
    const Card& card = cards[static_cast<size_t>(rank)];
    const auto it = std::ranges::find(hosts, card.name, &Host::name);
    const size_t i = static_cast<size_t>(it - hosts.begin());
    if (it == hosts.end()) {
      hosts.push_back({.name = card.name,
                       .cpu = card.cpu,
                       .ranks = {},
                       .num_cores = 0,
                       .all_cores = static_cast<int>(card.all_cores),
                       .memory = card.memory});
      cores.push_back(card.cores);
    }
    hosts[i].ranks.push_back(rank);
    CPU_OR(&cores[i], &cores[i], &card.cores);
    hosts[i].num_cores = CPU_COUNT(&cores[i]);
  }
  return hosts;
}

const Host& HostOf(std::span<const Host> hosts, int rank) {
  const auto it = std::ranges::find_if(
      hosts, [&](const Host& host) { return std::ranges::find(host.ranks, rank) != host.ranks.end(); });
  CHECK(it != hosts.end());
  return *it;
}

int NumFullHosts(std::span<const Host> hosts) {
  int ranks = 0, most = 1;
  for (const Host& host : hosts) {
    ranks += host.num_ranks();
    most = std::max(most, host.num_ranks());
  }
  return std::max(1, ranks / most);
}

std::vector<std::string> DescribeHosts(std::span<const Host> hosts) {
  CHECK(!hosts.empty());
  std::vector<std::string> names, lines;
  for (const Host& host : hosts) names.push_back(host.name);
  if (std::ranges::all_of(hosts, [&](const Host& host) { return Means(host) == Means(hosts[0]); }))
    return {fmt::format("{}, {}: {}", Plural(std::ssize(hosts), "host"), Means(hosts[0]),
                        fmt::join(names, ", "))};
  lines.push_back(
      fmt::format("{} that differ; all ranks wait for the slowest", Plural(std::ssize(hosts), "host")));
  for (const Host& host : hosts) lines.push_back(fmt::format("{}: {}", host.name, Means(host)));
  return lines;
}

}  // namespace longspan
