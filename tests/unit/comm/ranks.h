// The ranks of comm_test.cc, as the program that it is compiled into has them.
#pragma once

#include <functional>

#include "comm/comm.h"

namespace longspan::testing {

int MostRanks();

// body(comm) on so many ranks. Where ranks are processes, each of them calls; those that are too many do
// nothing.
void RunRanks(int num_ranks, const std::function<void(Comm&)>& body);

}  // namespace longspan::testing
