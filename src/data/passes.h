// Passes: a packed sequence walked in parts that end where documents end, so that what is worked on at once
// is a part's rows. No row sees another pass's, and each row's position and target are those of the sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/packing.h"
#include "mask/mask.h"

namespace longspan {

// The rows of each pass: of as many whole documents, in their order, as fit into `length` rows. None of them
// is longer (CHECK). Normalized documents; padding behind a pass's last document is in no pass.
std::vector<Range> PassesOf(std::span<const Range> documents, int64_t length);

// Those rows of a sequence as one of `length` rows, padded behind them. A sequence without ids, as of a dry
// run, gives padding.
Batch TakePass(const Batch& sequence, Range rows, int64_t length);

}  // namespace longspan
