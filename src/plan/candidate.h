// A way to run that may be chosen: how ranks are split and what a layer keeps, with its memory and, if it
// fits, its plan.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "train/memory_budget.h"
#include "train/memory_ladder.h"
#include "train/train_config.h"

namespace longspan {

// Groups of ranks that share a sequence, what they do about its attention, and over whom weights are sharded.
struct Split {
  std::string strategy;  // "none" where a rank has whole sequences
  bool shard_parameters = false;
  MeshShape mesh;

  // As they are given to `longspan train`.
  std::string Keys() const;
};
// Every one of so many ranks: each degree, each strategy at it, the other ranks data parallel, and weights
// whole or sharded over any part of these. If there are `sequences` in a step (0: as many as one likes) each
// group of ranks has as many as another. Of a model with `num_heads` query heads.
std::vector<Split> AllSplits(int ranks, int64_t sequences, int64_t num_heads);
TrainConfig WithSplit(TrainConfig config, const Split& split);

struct Candidate {
  Split split;
  const MemoryRung* rung = nullptr;  // null: what a layer keeps is not chosen
  TrainConfig config;                // of the run, not resolved
  std::string layout;
  MemoryFit memory;
  Plan plan;            // if it fits
  std::string verdict;  // what it lacks, or loses by against the fastest

  std::string Keys() const;  // of what is chosen
};

// Of a model that is open (OfSameModel), with this split and on this rung of the ladder, unless it is null.
Candidate PlanCandidate(const Job& opened, const Split& split, const MemoryRung* rung,
                        const Hardware& hardware, const MemoryCheck& check);
// Those that fit first, by tokens a second; then the others, by memory. Says their verdicts.
void RankCandidates(std::vector<Candidate>& candidates);

// A table's header and rows; the same as JSON (docs/reference/plan.md).
std::vector<std::string> CandidateHeader();
std::vector<std::string> RowOf(const Candidate& candidate);
nlohmann::ordered_json CandidatesJson(const std::vector<Candidate>& candidates);

}  // namespace longspan
