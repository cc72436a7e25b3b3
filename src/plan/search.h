// Every way to split a run over the ranks of a machine, planned: which fit, which is fastest, and why the
// others lose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "train/train_config.h"

namespace longspan {

struct Candidate {
  TrainConfig config;  // resolved, but for what a search chooses as it was asked for
  MeshShape mesh;
  std::string strategy;  // "none" where a rank has whole sequences
  std::string policy;    // what a layer keeps for its backward pass
  std::string layout;
  Plan plan;
  std::string verdict;  // of one that isn't the fastest: what it loses by
};

struct SearchResult {
  std::vector<Candidate> candidates;  // those that fit, by tokens a second; then the others, by memory
  int smallest_context = 0;  // ranks of a sequence of the smallest context degree that fits; 0: none does
  bool any_fits() const { return smallest_context > 0; }
};

// Over strategy, ring, ulysses, data parallel ranks, sharded and whole weights, and remat_policy for
// config.ranks; each group of ranks that shares sequences has one a step unless global_batch_size says how
// many there are in all, which then rules out numbers of groups that don't divide it. What else `config` says
// is kept, but its keys for the mesh and the strategy. Throws Error(kUsage) where nothing can be planned at
// all.
SearchResult SearchPlans(const TrainConfig& config, int64_t document_length, const Hardware& hardware);

// As they are given to `longspan train`.
std::string KeysOf(const Candidate& candidate);

std::string SearchTable(const SearchResult& result);
std::string SearchJson(const SearchResult& result);
std::string SearchPage(const TrainConfig& config, const Hardware& hardware, const SearchResult& result);

}  // namespace longspan
