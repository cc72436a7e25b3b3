// What ranks do at the same time, timed: each has a backend and operands of its own, and all share the cores,
// the caches and the memory, as the ranks of a run do.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/backend.h"
#include "core/work.h"

namespace longspan::bench {

// One operation of a backend, on operands that it owns. Done on a dry one it says what work it is.
using Operation = std::function<void(Backend&)>;
// Those of one rank, whose backend may prepare operands; called in the thread of that rank.
using MakeOperations = std::function<std::vector<Operation>(Backend&)>;

struct TimedOperation {
  Work work;
  double seconds = 0;      // the median over ranks and runs
  bool disturbed = false;  // by other work on the cores, however often it was tried
};
// Each operation by itself, on `ranks` ranks of so many threads at once: one run to warm up, then at least
// `runs`, or as many as 10 ms hold each time. A run beside other work is done again, some times. Throws
// Error.
std::vector<TimedOperation> TimeOnRanks(int ranks, int threads, int64_t runs, const MakeOperations& make);

// Messages round a ring of ranks, all at once.
struct LinkRates {
  double gbps = 0;        // a rank's, one way, of long messages
  double message_us = 0;  // of a byte, from its sending to its arrival
};
LinkRates MeasureLinks(int ranks, int64_t runs);

// A file in a folder, written and read past the page cache where its file system lets that be.
struct DiskRates {
  double write_gbps = 0, read_gbps = 0;
  bool direct = false;
};
// Throws Error(kResource) where none can be made there.
DiskRates MeasureDisk(const std::string& directory, int64_t runs);

}  // namespace longspan::bench
