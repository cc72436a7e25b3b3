#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/format.h"
#include "core/page.h"
#include "plan/report.h"
#include "train/report.h"

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;

// One way to split.
struct Split {
  std::string strategy;
  int groups = 1, ring = 1, ulysses = 1;  // groups: of ranks, each with sequences of its own
};

// What a layer keeps, from most to least; memory is given up in this order: attention's outputs go to the
// host before the layers' inputs, and attention is computed again last.
struct Policy {
  std::string_view name, remat_policy, context, decoder_layer_input;
};
constexpr Policy kPolicies[] = {
    {"all", "minimal_with_context", "", ""},
    {"input, q, k, v, context", "save_qkv_proj_with_context", "", ""},
    {"input, context", "custom", "device", "device"},
    {"input; context offloaded", "custom", "offload", "device"},
    {"input, context offloaded", "custom", "offload", "offload"},
    {"input", "custom", "remat", "device"},
    {"input offloaded", "custom", "remat", "offload"},
};

std::vector<Split> SplitsOf(const TrainConfig& config, int64_t num_heads) {
  std::vector<Split> splits;
  const int ranks = static_cast<int>(config.ranks);
  for (int context = 1; context <= ranks; ++context) {
    if (ranks % context != 0) continue;
    const int groups = ranks / context;
    if (config.global_batch_size > 0 && config.global_batch_size % groups != 0) continue;
    if (context == 1) {
      splits.push_back({"none", groups, 1, 1});
      continue;
    }
    splits.push_back({"all_gather", groups, context, 1});
    splits.push_back({"ring", groups, context, 1});
    if (context <= num_heads) splits.push_back({"ulysses", groups, 1, context});
    for (int ulysses = 2; ulysses < context && ulysses <= num_heads; ++ulysses)
      if (context % ulysses == 0) splits.push_back({"usp", groups, context / ulysses, ulysses});
  }
  return splits;
}

Candidate PlanOf(const TrainConfig& asked, const Split& split, const Policy& policy, bool shard,
                 int64_t document_length, const Hardware& hardware) {
  TrainConfig config = asked;
  config.shard_parameters = shard;
  config.remat_policy = policy.remat_policy;
  for (const PlacementKey& key : kPlacementKeys) (config.*key.field).clear();
  config.context = policy.context;
  config.decoder_layer_input = policy.decoder_layer_input;
  config.data_parallelism = shard ? 1 : split.groups;
  config.fsdp_parallelism = shard ? split.groups : 1;
  config.context_parallelism = split.ring;
  config.ulysses_parallelism = split.ulysses;
  config.context_parallel_strategy = {{"", split.strategy == "none" ? "ring" : split.strategy}};
  const Job job = PlannedJob(OpenModelAlone(config), document_length);
  return {.config = job.config,
          .mesh = job.mesh,
          .strategy = split.strategy,
          .policy = std::string(policy.name),
          .layout = job.config.context_parallel_layout,
          .plan = MakePlan(job, hardware),
          .verdict = {}};
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

bool IsBefore(const Candidate& a, const Candidate& b) {
  if (a.plan.fits != b.plan.fits) return a.plan.fits;
  if (a.plan.fits) return a.plan.tokens_per_second_per_device > b.plan.tokens_per_second_per_device;
  return a.plan.device_memory_bytes < b.plan.device_memory_bytes;
}

constexpr size_t kMostRows = 40;

const std::vector<std::string> kHeader = {"strategy", "data",   "ring", "ulysses", "layout",
                                          "kept",     "memory", "step", "MFU",     "verdict"};

std::vector<std::string> RowOf(const Candidate& c) {
  return {c.strategy,
          std::to_string(c.mesh.data),
          c.config.shard_parameters ? std::to_string(c.mesh.fsdp) : "-",
          std::to_string(c.mesh.ring),
          std::to_string(c.mesh.ulysses),
          c.layout,
          c.policy,
          FormatBytes(c.plan.device_memory_bytes),
          FormatSeconds(c.plan.step_seconds),
          Percent(c.plan.mfu),
          c.verdict};
}

std::string Conclusion(const SearchResult& result) {
  const Candidate& first = result.candidates.front();
  if (!result.any_fits()) return fmt::format("Nothing fits. The least that is needed: {}", first.plan.misfit);
  return fmt::format("The smallest context degree that fits is {}; the fastest plan: {}",
                     result.smallest_context, KeysOf(first));
}

}  // namespace

std::string KeysOf(const Candidate& c) {
  std::string keys = fmt::format(
      "context_parallel_strategy={} data_parallelism={} context_parallelism={} ulysses_parallelism={} "
      "remat_policy={}",
      c.config.context_parallel_strategy.at(""), c.mesh.data, c.mesh.ring, c.mesh.ulysses,
      c.config.remat_policy);
  if (c.config.shard_parameters)
    keys += fmt::format(" shard_parameters=true fsdp_parallelism={}", c.mesh.fsdp);
  if (c.config.remat_policy == "custom")
    keys += fmt::format(" context={} decoder_layer_input={}", c.config.context, c.config.decoder_layer_input);
  return keys;
}

SearchResult SearchPlans(const TrainConfig& config, int64_t document_length, const Hardware& hardware) {
  SearchResult result;
  const int64_t num_heads = OpenModelAlone(config).model.num_attention_heads;
  const std::vector<Split> splits = SplitsOf(config, num_heads);
  Require(ExitCode::kUsage, !splits.empty(),
          "no number of groups that divides ranks {} divides global_batch_size {} as well", config.ranks,
          config.global_batch_size);
  for (const Split& split : splits)
    for (const Policy& policy : kPolicies)
      for (const bool shard : {false, true})
        if (!shard || config.ranks > 1)
          result.candidates.push_back(PlanOf(config, split, policy, shard, document_length, hardware));
  std::ranges::stable_sort(result.candidates, IsBefore);
  const Candidate& best = result.candidates.front();
  for (Candidate& candidate : result.candidates) {
    if (!candidate.plan.fits) {
      candidate.verdict = candidate.plan.misfit;
      continue;
    }
    const int context = candidate.mesh.context();
    if (result.smallest_context == 0 || context < result.smallest_context) result.smallest_context = context;
    candidate.verdict = &candidate == &best ? "the fastest" : Loss(candidate, best);
  }
  return result;
}

std::string SearchTable(const SearchResult& result) {
  std::vector<std::vector<std::string>> rows;
  for (const Candidate& c : result.candidates)
    if (rows.size() < kMostRows) rows.push_back(RowOf(c));
  std::string text = TextTable(kHeader, rows);
  if (result.candidates.size() > kMostRows)
    text += fmt::format("… and {} more, which --format json lists\n", result.candidates.size() - kMostRows);
  return text + "\n" + Conclusion(result) + "\n";
}

std::string SearchPage(const TrainConfig& config, const Hardware& hardware, const SearchResult& result) {
  std::vector<std::vector<std::string>> rows;
  for (const Candidate& c : result.candidates) rows.push_back(RowOf(c));
  return HtmlPage(fmt::format("{} with sequences of {} on {} × {}", config.model_path,
                              FormatLength(config.max_target_length), config.ranks, hardware.hardware_name),
                  Conclusion(result), HtmlTable(kHeader, rows));
}

std::string SearchJson(const SearchResult& result) {
  Json json = {{"smallest_context_degree", result.any_fits() ? Json(result.smallest_context) : Json()}};
  json["fastest"] = result.any_fits() ? Json(KeysOf(result.candidates.front())) : Json();
  Json& rows = json["candidates"] = Json::array();
  for (const Candidate& c : result.candidates)
    rows.push_back({{"context_parallel_strategy", c.strategy},
                    {"data_parallelism", c.mesh.data},
                    {"fsdp_parallelism", c.mesh.fsdp},
                    {"shard_parameters", c.config.shard_parameters},
                    {"context_parallelism", c.mesh.ring},
                    {"ulysses_parallelism", c.mesh.ulysses},
                    {"context_parallel_layout", c.layout},
                    {"kept", c.policy},
                    {"keys", KeysOf(c)},
                    {"fits", c.plan.fits},
                    {"device_memory_bytes", c.plan.device_memory_bytes},
                    {"host_memory_bytes", c.plan.host_memory_bytes},
                    {"step_seconds", c.plan.step_seconds},
                    {"mfu", c.plan.mfu},
                    {"tokens_per_second_per_device", c.plan.tokens_per_second_per_device},
                    {"bound_by", c.plan.bound_by},
                    {"verdict", c.verdict}});
  return json.dump(2) + "\n";
}

}  // namespace longspan
