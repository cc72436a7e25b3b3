#include "plan/candidate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/format.h"
#include "plan/report.h"

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;

// The strategies of so many ranks to a sequence, by name and ring × ulysses.
std::vector<Split> StrategiesOf(int context, int64_t num_heads) {
  if (context == 1) return {{.strategy = "none", .mesh = {}}};
  std::vector<Split> splits = {{.strategy = "all_gather", .mesh = {.ring = context}},
                               {.strategy = "ring", .mesh = {.ring = context}}};
  if (context <= num_heads) splits.push_back({.strategy = "ulysses", .mesh = {.ulysses = context}});
  for (int ulysses = 2; ulysses < context && ulysses <= num_heads; ++ulysses)
    if (context % ulysses == 0)
      splits.push_back({.strategy = "usp", .mesh = {.ring = context / ulysses, .ulysses = ulysses}});
  return splits;
}

// What a step consists of, in seconds of a device for each token, by name.
std::vector<std::pair<const char*, double>> CostsATokenOf(const Candidate& c) {
  const Timeline& t = c.plan.timeline;
  const double tokens = c.plan.tokens_per_second_per_device * c.plan.step_seconds;
  const auto waited = [&](Lane lane) { return t.waited[static_cast<size_t>(lane)] / tokens; };
  return {{"attention", t.attention / tokens},
          {"matrix products", t.matmul / tokens},
          {"memory-bound operations", t.pointwise / tokens},
          {"waiting for links", waited(Lane::kLink)},
          {"waiting for the host", waited(Lane::kHost)},
          {"waiting for the disk", waited(Lane::kDisk)}};
}

// What most of the time that it takes longer goes to.
std::string Loss(const Candidate& candidate, const Candidate& best) {
  const auto its = CostsATokenOf(candidate), bests = CostsATokenOf(best);
  size_t worst = 0;
  const auto excess = [&](size_t i) { return its[i].second - bests[i].second; };
  for (size_t i = 1; i < its.size(); ++i)
    if (excess(i) > excess(worst)) worst = i;
  const double slower =
      best.plan.tokens_per_second_per_device / candidate.plan.tokens_per_second_per_device - 1;
  return fmt::format("{} slower, most by {}", Percent(slower), its[worst].first);
}

std::string KeptOf(const Candidate& c) {
  return c.rung == nullptr ? c.config.remat_policy : std::string(c.rung->name);
}

bool IsBefore(const Candidate& a, const Candidate& b) {
  if (a.memory.fits() != b.memory.fits()) return a.memory.fits();
  if (a.memory.fits()) return a.plan.tokens_per_second_per_device > b.plan.tokens_per_second_per_device;
  return a.memory.device_bytes < b.memory.device_bytes;
}

}  // namespace

std::vector<Split> AllSplits(int ranks, int64_t sequences, int64_t num_heads) {
  std::vector<Split> splits;
  for (int context = 1; context <= ranks; ++context) {
    if (ranks % context != 0) continue;
    const int groups = ranks / context;
    if (sequences > 0 && sequences % groups != 0) continue;
    for (Split split : StrategiesOf(context, num_heads)) {
      split.mesh.data = groups;
      splits.push_back(split);
      split.shard_parameters = true;
      for (int fsdp = 1; fsdp <= groups; ++fsdp) {
        if (groups % fsdp != 0 || fsdp * context == 1) continue;
        split.mesh.data = groups / fsdp;
        split.mesh.fsdp = fsdp;
        splits.push_back(split);
      }
    }
  }
  return splits;
}

TrainConfig WithSplit(TrainConfig config, const Split& split) {
  config.shard_parameters = split.shard_parameters;
  config.data_parallelism = split.mesh.data;
  config.fsdp_parallelism = split.mesh.fsdp;
  config.context_parallelism = split.mesh.ring;
  config.ulysses_parallelism = split.mesh.ulysses;
  config.context_parallel_strategy = {{"", split.strategy == "none" ? "ring" : split.strategy}};
  return config;
}

std::string Split::Keys() const {
  std::string keys = fmt::format(
      "context_parallel_strategy={} data_parallelism={} context_parallelism={} ulysses_parallelism={}",
      strategy == "none" ? "ring" : strategy, mesh.data, mesh.ring, mesh.ulysses);
  if (shard_parameters) keys += fmt::format(" shard_parameters=true fsdp_parallelism={}", mesh.fsdp);
  return keys;
}

std::string Candidate::Keys() const {
  return rung == nullptr ? split.Keys() : split.Keys() + " " + rung->Keys();
}

Candidate PlanCandidate(const Job& opened, const Split& split, const MemoryRung* rung,
                        const Hardware& hardware, const MemoryCheck& check) {
  Candidate candidate;
  candidate.split = split;
  candidate.rung = rung;
  candidate.config = WithSplit(opened.config, split);
  if (rung != nullptr) candidate.config = WithRung(candidate.config, *rung);
  const Job job = PrepareJobWithoutText(OfSameModel(opened, candidate.config));
  candidate.layout = job.config.context_parallel_layout;
  candidate.memory = check(job);
  if (candidate.memory.fits()) candidate.plan = MakePlan(job, hardware);
  return candidate;
}

void RankCandidates(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, IsBefore);
  for (Candidate& candidate : candidates)
    candidate.verdict = !candidate.memory.fits()            ? candidate.memory.misfit
                        : &candidate == &candidates.front() ? "the fastest"
                                                            : Loss(candidate, candidates.front());
}

std::vector<std::string> CandidateHeader() {
  return {"strategy", "data",   "fsdp", "ring", "ulysses", "layout",
          "kept",     "memory", "step", "MFU",  "verdict"};
}

std::vector<std::string> RowOf(const Candidate& c) {
  const bool fits = c.memory.fits();
  return {c.split.strategy,
          std::to_string(c.split.mesh.data),
          c.split.shard_parameters ? std::to_string(c.split.mesh.fsdp) : "-",
          std::to_string(c.split.mesh.ring),
          std::to_string(c.split.mesh.ulysses),
          c.layout,
          KeptOf(c),
          FormatBytes(c.memory.device_bytes),
          fits ? FormatSeconds(c.plan.step_seconds) : "-",
          fits ? Percent(c.plan.mfu) : "-",
          c.verdict};
}

Json CandidatesJson(const std::vector<Candidate>& candidates) {
  Json rows = Json::array();
  for (const Candidate& c : candidates) {
    const bool fits = c.memory.fits();
    rows.push_back(
        {{"context_parallel_strategy", c.split.strategy},
         {"data_parallelism", c.split.mesh.data},
         {"fsdp_parallelism", c.split.mesh.fsdp},
         {"shard_parameters", c.split.shard_parameters},
         {"context_parallelism", c.split.mesh.ring},
         {"ulysses_parallelism", c.split.mesh.ulysses},
         {"context_parallel_layout", c.layout},
         {"kept", KeptOf(c)},
         {"keys", c.Keys()},
         {"fits", fits},
         {"device_memory_bytes", c.memory.device_bytes},
         {"host_memory_bytes", c.memory.host_bytes},
         {"step_seconds", fits ? Json(c.plan.step_seconds) : Json()},
         {"mfu", fits ? Json(c.plan.mfu) : Json()},
         {"tokens_per_second_per_device", fits ? Json(c.plan.tokens_per_second_per_device) : Json()},
         {"bound_by", fits ? Json(c.plan.bound_by) : Json()},
         {"verdict", c.verdict}});
  }
  return rows;
}

}  // namespace longspan
