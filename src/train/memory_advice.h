// What a run that doesn't fit would fit with.
#pragma once

#include <string>
#include <vector>

#include "train/memory_budget.h"

namespace longspan {

// Keys to copy, each of which alone makes the job fit with all else the same: of the ladder the first rung,
// shards of the weights, the fewest ranks to a sequence, and (to within 1/64) the longest sequence. If none
// of these is enough, shards together with a rung, or with more ranks. Empty: nothing is. Each was checked.
std::vector<std::string> WhatFits(const Job& job, const MemoryCheck& check);

}  // namespace longspan
