#include <fmt/format.h>

#include <cmath>

#include "core/page.h"
#include "eval/report.h"

namespace longspan {
namespace {

std::string ContextText(const LossBucket& bucket) {
  return bucket.context_from == bucket.context_to
             ? std::to_string(bucket.context_from)
             : fmt::format("{}–{}", bucket.context_from, bucket.context_to);
}

std::string DepthText(const RetrievalCell& cell) {
  return cell.depth ? fmt::format("{:g} %", 100 * *cell.depth) : "all";
}

HeatMap AccuracyMap(const RetrievalReport& report, int64_t RetrievalCell::*right) {
  HeatMap map = {.corner = "length / depth", .columns = {}, .rows = {}, .values = {}};
  for (const RetrievalCell& cell : report.cells) {
    if (map.values.empty() || map.rows.back() != std::to_string(cell.length)) {
      map.rows.push_back(std::to_string(cell.length));
      map.values.emplace_back();
    }
    if (map.rows.size() == 1) map.columns.push_back(DepthText(cell));
    map.values.back().push_back(static_cast<double>(cell.*right) / static_cast<double>(cell.cases));
  }
  return map;
}

}  // namespace

std::string LossPage(const Job& job, const LossReport& report) {
  Plot plot = {.x_title = "tokens of context (logarithmic)",
               .y_title = "loss, nats a token",
               .series = std::vector<Plot::Series>(1),
               .mean = report.whole.loss,
               .mean_label = fmt::format("all: {:.4f}", report.whole.loss)};
  std::vector<std::vector<std::string>> rows;
  const auto add_row = [&](const std::string& name, const LossBucket& b) {
    rows.push_back({name, std::to_string(b.targets), fmt::format("{:.4f}", b.loss),
                    b.standard_error ? fmt::format("{:.4f}", *b.standard_error) : "–",
                    fmt::format("{:.3f}", b.perplexity())});
  };
  for (const LossBucket& b : report.buckets) {
    const double middle = std::sqrt(static_cast<double>(b.context_from) * static_cast<double>(b.context_to));
    const auto bar = b.standard_error ? std::optional(2 * *b.standard_error) : std::nullopt;
    plot.series[0].points.push_back(
        {middle, b.loss, bar, fmt::format("{} tokens: {:.4f}", ContextText(b), b.loss)});
    add_row(ContextText(b), b);
  }
  add_row("all", report.whole);
  return HtmlPage(
      "Loss by context",
      fmt::format("{} on {}; {} tokens in sequences of {}; bars are two standard errors",
                  job.config.model_path, job.sources[0].path, report.tokens, job.config.max_target_length),
      SvgPlot(plot) +
          HtmlTable({"tokens of context", "targets", "loss", "standard error", "perplexity"}, rows));
}

std::string RetrievalPage(const Job& job, const RetrievalReport& report) {
  const RetrievalCell whole = report.Whole();
  const double n = static_cast<double>(whole.cases);
  return HtmlPage(
      fmt::format("Retrieval: {}", report.task),
      fmt::format("{}; {} cases; by length in tokens and place of the answer in the text",
                  job.config.model_path, whole.cases),
      fmt::format("<h2>The right answer is likelier than the wrong ones: {:.3f}, by chance {:.3f}</h2>\n",
                  static_cast<double>(whole.likeliest) / n, whole.chance / n) +
          HtmlHeatMap(AccuracyMap(report, &RetrievalCell::likeliest)) +
          fmt::format("<h2>Greedy decoding gives the right answer: {:.3f}</h2>\n",
                      static_cast<double>(whole.greedy) / n) +
          HtmlHeatMap(AccuracyMap(report, &RetrievalCell::greedy)));
}

}  // namespace longspan
