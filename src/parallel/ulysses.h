// How Ulysses deals heads to ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mask/mask.h"

namespace longspan {

// What one rank computes: its query heads and every KV head that they use.
struct HeadShare {
  Range query_heads;  // [⌊pH/U⌋, ⌊(p+1)H/U⌋)
  Range kv_heads;
  std::vector<int32_t> kv_of;  // of each of query_heads: its KV head, counted from kv_heads.begin
};

// One share per rank, p = 0 … num_ranks − 1. `kv_of` (H) is ascending; H ≥ num_ranks.
std::vector<HeadShare> DealHeads(std::span<const int32_t> kv_of, int num_ranks);

}  // namespace longspan
