#include "plan/search.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/format.h"
#include "core/page.h"
#include "plan/report.h"

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRows = 40;

std::string Conclusion(const SearchResult& result) {
  const Candidate& first = result.candidates.front();
  if (!result.any_fits())
    return fmt::format("Nothing fits. The least that is needed: {}", first.memory.misfit);
  return fmt::format("The smallest context degree that fits is {}; the fastest plan: {}",
                     result.smallest_context, first.Keys());
}

}  // namespace

SearchResult SearchPlans(const Job& opened, const Hardware& hardware) {
  SearchResult result;
  const TrainConfig& config = opened.config;
  const std::vector<Split> splits =
      AllSplits(static_cast<int>(config.ranks), config.global_batch_size, opened.model.num_attention_heads);
  Require(ExitCode::kUsage, !splits.empty(),
          "no number of groups that divides ranks {} divides global_batch_size {} as well", config.ranks,
          config.global_batch_size);
  const MemoryCheck check = FitOn(hardware);
  for (const Split& split : splits)
    for (const MemoryRung& rung : MemoryLadder())
      result.candidates.push_back(PlanCandidate(opened, split, &rung, hardware, check));
  RankCandidates(result.candidates);
  for (const Candidate& candidate : result.candidates) {
    const int context = candidate.split.mesh.context();
    if (candidate.memory.fits() && (result.smallest_context == 0 || context < result.smallest_context))
      result.smallest_context = context;
  }
  return result;
}

std::string SearchTable(const SearchResult& result) {
  std::vector<std::vector<std::string>> rows;
  for (const Candidate& c : result.candidates)
    if (rows.size() < kMostRows) rows.push_back(RowOf(c));
  std::string text = TextTable(CandidateHeader(), rows);
  if (result.candidates.size() > kMostRows)
    text += fmt::format("… and {} more, which --format json lists\n", result.candidates.size() - kMostRows);
  return text + "\n" + Conclusion(result) + "\n";
}

std::string SearchPage(const TrainConfig& config, const Hardware& hardware, const SearchResult& result) {
  std::vector<std::vector<std::string>> rows;
  for (const Candidate& c : result.candidates) rows.push_back(RowOf(c));
  return HtmlPage(fmt::format("{} with sequences of {} on {} × {}", config.model_path,
                              FormatLength(config.max_target_length), config.ranks, hardware.hardware_name),
                  Conclusion(result), HtmlTable(CandidateHeader(), rows));
}

std::string SearchJson(const SearchResult& result) {
  Json json = {{"smallest_context_degree", result.any_fits() ? Json(result.smallest_context) : Json()}};
  json["fastest"] = result.any_fits() ? Json(result.candidates.front().Keys()) : Json();
  json["candidates"] = CandidatesJson(result.candidates);
  return json.dump(2) + "\n";
}

}  // namespace longspan
