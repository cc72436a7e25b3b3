// Every way to split a run over the ranks of a machine, planned: which fit, which is fastest, and why the
// others lose.
#pragma once

#include <string>
#include <vector>

#include "plan/candidate.h"

namespace longspan {

struct SearchResult {
  std::vector<Candidate> candidates;  // those that fit, by tokens a second; then the others, by memory
  int smallest_context = 0;  // ranks of a sequence of the smallest context degree that fits; 0: none does
  bool any_fits() const { return smallest_context > 0; }
};

// Every split of config.ranks (AllSplits) on every rung of the memory ladder; each group of ranks that shares
// sequences has one a step unless global_batch_size says how many there are in all, which then rules out
// numbers of groups that don't divide it. What else the configuration of `opened`, a model, says is kept, but
// its keys for the mesh, the strategy and what a layer keeps. Throws Error(kUsage) where nothing can be
// planned at all.
SearchResult SearchPlans(const Job& opened, const Hardware& hardware);

std::string SearchTable(const SearchResult& result);
std::string SearchJson(const SearchResult& result);
std::string SearchPage(const TrainConfig& config, const Hardware& hardware, const SearchResult& result);

}  // namespace longspan
