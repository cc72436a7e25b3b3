#include "plan/auto.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>

#include "core/check.h"
#include "core/format.h"
#include "plan/report.h"

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kAuto = "auto";
constexpr size_t kShownCandidates = 6;

void RequireFree(const TrainConfig& c) {
  Require(
      ExitCode::kUsage, c.context_parallel_strategy.size() == 1 || !LeavesStrategy(c),
      "context_parallel_strategy: auto is of all layers alike; give it alone, or a strategy for each type");
  if (!LeavesPolicy(c)) return;
  for (const auto& [id, field] : kPlacementKeys)
    Require(ExitCode::kUsage, (c.*field).empty(),
            "{} is {}, but remat_policy is auto, which chooses that; leave {} out, or give "
            "remat_policy=custom and all that is to be kept",
            RowOf(id).name, c.*field, RowOf(id).name);
}

// Whether a split is one of those that the keys of the mesh leave: a default leaves all.
bool IsLeft(const TrainConfig& c, const Split& split) {
  const auto agrees = [](int64_t asked, int64_t default_size, int size) {
    return asked <= default_size || asked == size;
  };
  return agrees(c.data_parallelism, 1, split.mesh.data) && agrees(c.fsdp_parallelism, 1, split.mesh.fsdp) &&
         agrees(c.context_parallelism, 0, split.mesh.ring) &&
         agrees(c.ulysses_parallelism, 0, split.mesh.ulysses) &&
         (split.shard_parameters || !c.shard_parameters || c.ranks == 1);
}

// What a step does must not depend on which split is faster.
int64_t SequencesOf(const TrainConfig& c) {
  if (c.global_batch_size > 0) return c.global_batch_size;
  return std::max<int64_t>(1, c.data_parallelism) * std::max<int64_t>(1, c.fsdp_parallelism);
}

std::vector<Split> SplitsLeft(const TrainConfig& c, int64_t num_heads) {
  std::vector<Split> splits = AllSplits(static_cast<int>(c.ranks), c.global_batch_size, num_heads);
  std::erase_if(splits, [&](const Split& split) { return !IsLeft(c, split); });
  Require(
      ExitCode::kUsage, !splits.empty(),
      "context_parallel_strategy=auto has nothing to choose from: no split of {} has data_parallelism {}, "
      "fsdp_parallelism {}, context_parallelism {}, ulysses_parallelism {}, shard_parameters {} and {} of "
      "a step; leave some of these keys out",
      Plural(c.ranks, "rank"), c.data_parallelism, c.fsdp_parallelism, c.context_parallelism,
      c.ulysses_parallelism, c.shard_parameters, Plural(c.global_batch_size, "sequence"));
  return splits;
}

MemoryFit FitOf(const Job& opened, const TrainConfig& config, const MemoryCheck& check) {
  return check(PrepareJobWithoutText(OfSameModel(opened, config)));
}

std::string Indented(const std::string& lines) {
  std::string text;
  for (const auto line : std::views::split(lines, '\n'))
    if (!line.empty()) text += fmt::format("{:<9} {}\n", "", std::string_view(line.begin(), line.end()));
  return text;
}

std::string CandidatesText(const std::vector<Candidate>& candidates) {
  std::vector<std::vector<std::string>> rows;
  for (const Candidate& c : candidates | std::views::take(kShownCandidates)) rows.push_back(RowOf(c));
  const auto fitting = std::ranges::count_if(candidates, [](const auto& c) { return c.memory.fits(); });
  return fmt::format("{:<9} context_parallel_strategy, by the time of a step as planned; {} of {} fit\n",
                     "chosen", fitting, Plural(std::ssize(candidates), "split")) +
         Indented(TextTable(CandidateHeader(), rows));
}

std::string RungsText(const RungChoice& choice) {
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < choice.tried.size(); ++i) {
    const auto& [rung, fit] = choice.tried[i];
    const std::string verdict = fit.fits() ? "fits" : fit.misfit;
    rows.push_back({std::string(rung->name), FormatBytes(fit.device_bytes), FormatBytes(fit.host_bytes),
                    i == choice.chosen ? fmt::format("{}; chosen: {}", verdict, rung->Keys()) : verdict});
  }
  return fmt::format("{:<9} remat_policy, {}\n", "chosen",
                     choice.tried[choice.chosen].fit.fits() ? "the first that fits"
                                                            : "that which takes least; none fits") +
         Indented(TextTable({"kept", "device", "host", "verdict"}, rows));
}

}  // namespace

bool LeavesPolicy(const TrainConfig& config) { return config.remat_policy == kAuto; }

bool LeavesStrategy(const TrainConfig& config) {
  return std::ranges::any_of(config.context_parallel_strategy,
                             [](const auto& entry) { return entry.second == kAuto; });
}

AutoChoice ChooseAuto(const Job& opened, const MemoryCheck& check, const Hardware* hardware) {
  RequireFree(opened.config);
  AutoChoice choice = {.config = opened.config, .rungs = {}, .candidates = {}};
  const bool leaves_policy = LeavesPolicy(opened.config);
  const auto choose_rung = [&](const TrainConfig& config) {
    return ChooseRung(config, [&](const TrainConfig& on_rung) { return FitOf(opened, on_rung, check); });
  };
  if (LeavesStrategy(opened.config)) {
    CHECK(hardware != nullptr);
    choice.config.global_batch_size = SequencesOf(choice.config);
    const Job of_step = OfSameModel(opened, choice.config);
    for (const Split& split : SplitsLeft(choice.config, opened.model.num_attention_heads)) {
      const MemoryRung* rung = leaves_policy ? &choose_rung(WithSplit(choice.config, split)).rung() : nullptr;
      choice.candidates.push_back(PlanCandidate(of_step, split, rung, *hardware, check));
    }
    RankCandidates(choice.candidates);
    choice.config = WithSplit(choice.config, choice.candidates.front().split);
  }
  if (leaves_policy) {
    choice.rungs = choose_rung(choice.config);
    choice.config = WithRung(choice.config, choice.rungs.rung());
  }
  return choice;
}

std::string AutoText(const AutoChoice& choice) {
  std::string text;
  if (!choice.candidates.empty()) text += CandidatesText(choice.candidates);
  if (!choice.rungs.tried.empty()) text += RungsText(choice.rungs);
  return text;
}

Json AutoJson(const AutoChoice& choice) {
  Json rungs = Json::array();
  for (const auto& [rung, fit] : choice.rungs.tried)
    rungs.push_back({{"kept", std::string(rung->name)},
                     {"keys", rung->Keys()},
                     {"fits", fit.fits()},
                     {"misfit", fit.misfit},
                     {"device_memory_bytes", fit.device_bytes},
                     {"host_memory_bytes", fit.host_bytes}});
  const std::string keys = !choice.candidates.empty()    ? choice.candidates.front().Keys()
                           : !choice.rungs.tried.empty() ? choice.rungs.rung().Keys()
                                                         : "";
  return {{"keys", keys}, {"rungs", rungs}, {"candidates", CandidatesJson(choice.candidates)}};
}

}  // namespace longspan
