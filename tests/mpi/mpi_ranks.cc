// The ranks of tests as processes: every one runs all tests, in the same order. The first shows them; others
// show what fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <vector>

#include "comm/mpi_comm.h"
#include "unit/comm/ranks.h"

namespace longspan::testing {
namespace {

Comm* world = nullptr;  // of main

}  // namespace

int MostRanks() { return world->size(); }

void RunRanks(int num_ranks, const std::function<void(Comm&)>& body) {
  CHECK(num_ranks <= MostRanks());
  const AbortOnUnwind guard(*world);
  if (world->rank() < num_ranks) {
    std::vector<int> ranks(static_cast<size_t>(num_ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    body(*world->Subgroup(ranks));
  }
  world->Barrier();
}

}  // namespace longspan::testing

int main(int argc, char** argv) {
  int failed = 1;
  try {
    longspan::RunMpiRank([&](longspan::Comm& comm) {
      longspan::testing::world = &comm;
      ::testing::InitGoogleTest(&argc, argv);
      if (comm.rank() > 0) GTEST_FLAG_SET(brief, true);
      failed = RUN_ALL_TESTS();
    });
  } catch (const longspan::Error& error) {
    std::fputs(fmt::format("{}\n", error.what()).c_str(), stderr);
    failed = 1;
  }
  longspan::LeaveMpi(failed);
  return failed;
}
