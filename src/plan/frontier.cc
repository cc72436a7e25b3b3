#include "plan/frontier.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/format.h"
#include "core/page.h"
#include "plan/report.h"

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kShortest = 4096, kLongest = int64_t{1} << 31;

Job OpenedModel(const TrainConfig& config, int64_t document_length) {
  Job opened = OpenModelAlone(config);
  opened.document_length = document_length;
  return opened;
}

// One sequence over all ranks, with shards of the weights.
Plan MemoryOf(const TrainConfig& given, int ranks, int64_t length, int64_t document_length,
              const std::string& strategy, const MemoryRung& rung, const Hardware& hardware) {
  TrainConfig config = WithRung(given, rung);
  config.ranks = ranks;
  config.max_target_length = length;
  config.global_batch_size = 1;
  config.data_parallelism = config.fsdp_parallelism = 1;
  config.shard_parameters = ranks > 1;
  config.context_parallelism = config.ulysses_parallelism = 0;
  config.context_parallel_strategy = {{"", strategy}};
  return PlanMemory(PrepareJobWithoutText(OpenedModel(config, document_length)), hardware);
}

Frontier::Reach ReachOf(const TrainConfig& config, int ranks, int64_t document_length,
                        const std::string& strategy, const MemoryRung& rung, const Hardware& hardware) {
  Plan longest_plan;
  const auto fits = [&](int64_t length) {
    Plan plan = MemoryOf(config, ranks, length, document_length, strategy, rung, hardware);
    if (!plan.fits) return false;
    longest_plan = std::move(plan);
    return true;
  };
  Frontier::Reach reach = {.ranks = ranks,
                           .longest = 0,
                           .strategy = strategy,
                           .kept = std::string(rung.name),
                           .largest_memory = {}};
  if (!fits(kShortest)) return reach;
  int64_t good = kShortest;
  while (good < kLongest && fits(2 * good)) good *= 2;
  for (int64_t step = good / 2, least = good / 64; step >= least; step /= 2)
    if (fits(good + step)) good += step;
  reach.longest = good;
  reach.largest_memory.assign(longest_plan.memory.begin(), longest_plan.memory.end());
  std::ranges::stable_sort(reach.largest_memory,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  reach.largest_memory.resize(std::min<size_t>(reach.largest_memory.size(), 3));
  return reach;
}

// The longest of what ring and usp reach on the ladder's last rungs, where a layer keeps its input alone:
// which of them takes less depends on heads and ranks, and on the host's memory.
Frontier::Reach LongestReach(const TrainConfig& config, int ranks, int64_t document_length,
                             const Hardware& hardware) {
  Frontier::Reach longest = {
      .ranks = ranks, .longest = 0, .strategy = "ring", .kept = "", .largest_memory = {}};
  for (const char* strategy : {"ring", "usp"}) {
    if (ranks == 1 && strategy == std::string_view("usp")) continue;
    for (const MemoryRung& rung : MemoryLadder()) {
      if (rung.context != "remat") continue;
      Frontier::Reach reach = ReachOf(config, ranks, document_length, strategy, rung, hardware);
      if (reach.longest > longest.longest) longest = std::move(reach);
    }
  }
  return longest;
}

std::string LargestText(const Frontier::Reach& reach) {
  std::string text;
  for (const auto& [name, bytes] : reach.largest_memory)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, FormatBytes(bytes));
  return text;
}

std::vector<std::string> ReachRow(const Frontier::Reach& reach) {
  return {std::to_string(reach.ranks),
          reach.longest == 0 ? "none" : FormatLength(reach.longest),
          reach.longest == 0 ? "" : FormatLength(reach.longest / reach.ranks),
          reach.longest == 0 ? "" : reach.strategy,
          reach.longest == 0 ? "" : reach.kept,
          LargestText(reach)};
}

std::vector<std::string> LengthRow(const Candidate& c) {
  return {FormatLength(c.config.max_target_length),
          fmt::format("{} × {}", c.split.mesh.context(), c.split.mesh.groups()),
          c.split.strategy == "usp" ? fmt::format("usp {} × {}", c.split.mesh.ring, c.split.mesh.ulysses)
                                    : c.split.strategy,
          std::string(c.rung->name),
          FormatSeconds(c.plan.step_seconds),
          Percent(c.plan.mfu),
          fmt::format("{:.1f}", c.plan.tokens_per_second_per_device),
          FormatBytes(c.memory.device_bytes),
          c.plan.bound_by};
}

const std::vector<std::string> kReachHeader = {"devices",  "longest", "a device",
                                               "strategy", "kept",    "largest in memory"};
const std::vector<std::string> kLengthHeader = {"length", "context × data", "strategy", "kept",    "step",
                                                "MFU",    "tokens/s",       "memory",   "bound by"};

}  // namespace

Frontier FindFrontier(const TrainConfig& config, int64_t document_length, const Hardware& hardware) {
  Frontier frontier;
  const int ranks = static_cast<int>(config.ranks);
  for (int n = 1; n < ranks; n *= 2)
    frontier.reach.push_back(LongestReach(config, n, document_length, hardware));
  frontier.reach.push_back(LongestReach(config, ranks, document_length, hardware));
  const int64_t longest = frontier.reach.back().longest;
  for (int64_t length = kShortest; length <= longest; length *= 2) {
    TrainConfig at_length = config;
    at_length.max_target_length = length;
    at_length.global_batch_size = 0;
    SearchResult result = SearchPlans(OpenedModel(at_length, document_length), hardware);
    if (result.any_fits()) frontier.by_length.push_back(std::move(result.candidates.front()));
  }
  return frontier;
}

std::string FrontierTable(const Frontier& frontier) {
  std::vector<std::vector<std::string>> reach, lengths;
  for (const Frontier::Reach& r : frontier.reach) reach.push_back(ReachRow(r));
  for (const Candidate& c : frontier.by_length) lengths.push_back(LengthRow(c));
  return "The longest sequence over so many devices\n" + TextTable(kReachHeader, reach) +
         "\nThe fastest plan of each length, on all devices\n" + TextTable(kLengthHeader, lengths);
}

std::string FrontierJson(const Frontier& frontier) {
  Json json = {{"longest", Json::array()}, {"by_length", Json::array()}};
  for (const Frontier::Reach& r : frontier.reach)
    json["longest"].push_back({{"ranks", r.ranks},
                               {"max_target_length", r.longest},
                               {"context_parallel_strategy", r.strategy},
                               {"kept", r.kept}});
  for (const Candidate& c : frontier.by_length)
    json["by_length"].push_back({{"max_target_length", c.config.max_target_length},
                                 {"context_parallel_strategy", c.split.strategy},
                                 {"kept", std::string(c.rung->name)},
                                 {"data_parallelism", c.split.mesh.data},
                                 {"fsdp_parallelism", c.split.mesh.fsdp},
                                 {"context_parallelism", c.split.mesh.ring},
                                 {"ulysses_parallelism", c.split.mesh.ulysses},
                                 {"step_seconds", c.plan.step_seconds},
                                 {"mfu", c.plan.mfu},
                                 {"tokens_per_second_per_device", c.plan.tokens_per_second_per_device},
                                 {"device_memory_bytes", c.memory.device_bytes},
                                 {"bound_by", c.plan.bound_by}});
  return json.dump(2) + "\n";
}

std::string FrontierPage(const TrainConfig& config, const Hardware& hardware, const Frontier& frontier) {
  Plot reach = {.x_title = "devices (logarithmic)",
                .y_title = "longest sequence, tokens (logarithmic)",
                .series = std::vector<Plot::Series>(1),
                .logarithmic_y = true,
                .mean = {},
                .mean_label = {}};
  Plot speed = {.x_title = "tokens of a sequence (logarithmic)",
                .y_title = "MFU, %",
                .series = std::vector<Plot::Series>(1),
                .mean = {},
                .mean_label = {}};
  std::vector<std::vector<std::string>> reach_rows, length_rows;
  for (const Frontier::Reach& r : frontier.reach) {
    reach_rows.push_back(ReachRow(r));
    if (r.longest > 0)
      reach.series[0].points.push_back({static_cast<double>(r.ranks),
                                        static_cast<double>(r.longest),
                                        {},
                                        fmt::format("{} devices: {}", r.ranks, FormatLength(r.longest))});
  }
  for (const Candidate& c : frontier.by_length) {
    length_rows.push_back(LengthRow(c));
    speed.series[0].points.push_back({static_cast<double>(c.config.max_target_length),
                                      100 * c.plan.mfu,
                                      {},
                                      fmt::format("{}: {}, {}", FormatLength(c.config.max_target_length),
                                                  Percent(c.plan.mfu), c.split.strategy)});
  }
  std::string body;
  if (!reach.series[0].points.empty())
    body += "<h2>Longest sequence by number of devices</h2>\n" + SvgPlot(reach);
  body += HtmlTable(kReachHeader, reach_rows);
  if (!speed.series[0].points.empty()) body += "<h2>Speed by length, on all devices</h2>\n" + SvgPlot(speed);
  body += HtmlTable(kLengthHeader, length_rows);
  return HtmlPage(fmt::format("{} on {}", config.model_path, hardware.hardware_name),
                  fmt::format("Up to {} devices of {} usable memory; planned, not measured", config.ranks,
                              FormatBytes(hardware.usable_memory_bytes())),
                  body);
}

}  // namespace longspan
