// How far a machine goes: the longest sequence for each number of ranks, and the speed against the length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/search.h"

namespace longspan {

struct Frontier {
  struct Reach {
    int ranks = 0;
    int64_t longest = 0;         // tokens of one sequence over all of them; 0: nothing fits
    std::string strategy, kept;  // kept: the rung of the ladder
    std::vector<std::pair<std::string, int64_t>> largest_memory;  // there, by name
  };
  std::vector<Reach> reach;          // 1, 2, 4, … config.ranks ranks
  std::vector<Candidate> by_length;  // with config.ranks: the fastest plan of each length that fits, doubling
};

// Lengths are found to within 1/64. What else `config` says is kept, but for max_target_length, the mesh, the
// strategy and global_batch_size.
Frontier FindFrontier(const TrainConfig& config, int64_t document_length, const Hardware& hardware);

std::string FrontierTable(const Frontier& frontier);
std::string FrontierJson(const Frontier& frontier);
std::string FrontierPage(const TrainConfig& config, const Hardware& hardware, const Frontier& frontier);

}  // namespace longspan
