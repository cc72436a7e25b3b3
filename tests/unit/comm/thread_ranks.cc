#include "comm/thread_comm.h"
#include "unit/comm/ranks.h"

namespace longspan::testing {

int MostRanks() { return 8; }

void RunRanks(int num_ranks, const std::function<void(Comm&)>& body) { RunThreadRanks(num_ranks, body); }

}  // namespace longspan::testing
