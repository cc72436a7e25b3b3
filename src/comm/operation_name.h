// An operation between ranks as errors name it, and what is said of one that waits for too long.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/work.h"

namespace longspan {

struct OperationName {
  WorkKind kind = WorkKind::kSend;
  std::shared_ptr<const std::vector<int>> ranks;  // of the group, as the whole job numbers them
  int peer = -1;                                  // likewise, of a message
  int64_t step = 0;                               // 0: none
};

// "all_gather of ranks 0–3 (step 12)", "recv from rank 2 (step 12)".
std::string Describe(const OperationName& name);

// "rank 2", "ranks 2 and 3", "ranks 0–3, 6 and 7"; in ascending order.
std::string RanksText(std::vector<int> ranks);

// What ends a run in which an operation has waited for so many seconds.
struct Verdict {
  std::string message;  // empty: nothing does
  ExitCode code = ExitCode::kPeer;
};
// For `ranks`, which have failed; `why`: "rank 2 does not answer, rank 3 …".
Verdict WaitedInVain(const OperationName& name, double seconds, const std::vector<int>& ranks,
                     const std::string& why);
// For a rank that waits itself, in the operation `other`, for one that waits: no failure but a fault of ours.
Verdict CallsDisagree(const OperationName& name, double seconds, int rank, const std::string& other);
// What is said where the ranks that it waits for go on.
std::string StillWaits(const OperationName& name, double seconds, const std::vector<int>& ranks);

}  // namespace longspan
