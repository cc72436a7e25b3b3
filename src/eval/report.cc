#include "eval/report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;

// Of the model's layer kinds, in their order; one if all have the same.
std::string StrategiesOf(const Job& job) {
  const std::vector<std::string>& all = job.strategies;
  const bool same = std::ranges::all_of(all, [&](const std::string& name) { return name == all.front(); });
  return same ? all.front() : fmt::format("{}", fmt::join(all, "/"));
}

// What every report begins with.
Json Head(const Job& job, const std::string& task) {
  const TrainConfig& c = job.config;
  return {{"task", task},
          {"model_path", c.model_path},
          {"dtype", c.dtype},
          {"max_target_length", c.max_target_length},
          {"ranks", c.ranks},
          {"context_parallel_strategy", StrategiesOf(job)},
          {"context_parallel_layout", c.context_parallel_layout}};
}

std::string RanksLine(const Job& job, int64_t tokens, double seconds) {
  const TrainConfig& c = job.config;
  return fmt::format(
      "{} tokens in {:.2f} s, {:.0f} tokens/s; {}, {} {} × {} threads{}\n", tokens, seconds,
      static_cast<double>(tokens) / seconds, c.dtype, c.ranks, c.ranks == 1 ? "rank" : "ranks",
      c.threads_per_rank,
      c.ranks == 1 ? "" : fmt::format(", {}, {}", StrategiesOf(job), c.context_parallel_layout));
}

Json BucketJson(const LossBucket& bucket) {
  Json json = {{"context_from", bucket.context_from},
               {"context_to", bucket.context_to},
               {"targets", bucket.targets},
               {"loss", bucket.loss},
               {"perplexity", bucket.perplexity()}};
  json["standard_error"] = bucket.standard_error ? Json(*bucket.standard_error) : Json();
  return json;
}

std::string BucketLine(const std::string& name, const LossBucket& bucket) {
  return fmt::format("{:>17} {:>10} {:>9.4f} {:>9} {:>12.3f}\n", name, bucket.targets, bucket.loss,
                     bucket.standard_error ? fmt::format("{:.4f}", *bucket.standard_error) : "-",
                     bucket.perplexity());
}

Json CellJson(const RetrievalCell& cell) {
  const double n = static_cast<double>(cell.cases);
  Json json;
  if (cell.length > 0) json["length"] = cell.length;
  if (cell.depth) json["depth"] = 100 * *cell.depth;
  json["cases"] = cell.cases;
  json["accuracy"] = static_cast<double>(cell.likeliest) / n;
  json["greedy_accuracy"] = static_cast<double>(cell.greedy) / n;
  json["chance"] = cell.chance / n;
  json["log_probability"] = cell.log_probability / n;
  json["answer_tokens"] = static_cast<double>(cell.answer_tokens) / n;
  return json;
}

std::vector<double> DepthsOf(const RetrievalReport& report) {
  std::set<double> depths;
  for (const RetrievalCell& cell : report.cells)
    if (cell.depth) depths.insert(*cell.depth);
  return {depths.begin(), depths.end()};
}

std::vector<int64_t> LengthsOf(const RetrievalReport& report) {
  std::vector<int64_t> lengths;
  for (const RetrievalCell& cell : report.cells)
    if (lengths.empty() || lengths.back() != cell.length) lengths.push_back(cell.length);
  return lengths;
}

// Accuracies by length and depth, the last column over all depths.
std::string AccuracyTable(const RetrievalReport& report, int64_t RetrievalCell::*right) {
  const auto cell_text = [&](const RetrievalCell& cell) {
    return fmt::format(" {:>7.3f}", static_cast<double>(cell.*right) / static_cast<double>(cell.cases));
  };
  std::string text = fmt::format("{:>10}", "length");
  for (const double depth : DepthsOf(report))
    text += fmt::format(" {:>7}", fmt::format("{:g} %", 100 * depth));
  text += fmt::format(" {:>7}\n", "all");
  for (const int64_t length : LengthsOf(report)) {
    text += fmt::format("{:>10}", length);
    for (const RetrievalCell& cell : report.cells)
      if (cell.length == length && cell.depth) text += cell_text(cell);
    text += cell_text(report.OfLength(length)) + "\n";
  }
  return text;
}

}  // namespace

std::string LossTable(const Job& job, const LossReport& report) {
  std::string text = fmt::format("{:>17} {:>10} {:>9} {:>9} {:>12}\n", "tokens of context", "targets", "loss",
                                 "± s.e.", "perplexity");
  for (const LossBucket& bucket : report.buckets)
    text += BucketLine(bucket.context_from == bucket.context_to
                           ? std::to_string(bucket.context_from)
                           : fmt::format("{}-{}", bucket.context_from, bucket.context_to),
                       bucket);
  return text + BucketLine("all", report.whole) + RanksLine(job, report.tokens, report.seconds);
}

std::string LossJson(const Job& job, const LossReport& report) {
  Json json = Head(job, "loss");
  json["data_path"] = job.sources[0].path;
  json["sequences"] = report.sequences;
  json["tokens"] = report.tokens;
  const Json whole = BucketJson(report.whole);
  for (const char* key : {"targets", "loss", "perplexity", "standard_error"}) json[key] = whole[key];
  json["buckets"] = Json::array();
  for (const LossBucket& bucket : report.buckets) json["buckets"].push_back(BucketJson(bucket));
  json["seconds"] = report.seconds;
  json["tokens_per_second"] = static_cast<double>(report.tokens) / report.seconds;
  return json.dump(2) + "\n";
}

std::string RetrievalTable(const Job& job, const RetrievalReport& report) {
  const RetrievalCell whole = report.Whole();
  const double n = static_cast<double>(whole.cases);
  std::string text = fmt::format("{}: the right answer is likelier than the wrong ones (by chance {:.3f})\n",
                                 report.task, whole.chance / n);
  text += AccuracyTable(report, &RetrievalCell::likeliest);
  text += fmt::format("{}: greedy decoding gives the right answer, of {:.1f} tokens\n", report.task,
                      static_cast<double>(whole.answer_tokens) / n);
  text += AccuracyTable(report, &RetrievalCell::greedy);
  return text +
         fmt::format("{} cases; mean log probability of the right answer {:.3f}\n", whole.cases,
                     whole.log_probability / n) +
         RanksLine(job, report.tokens, report.seconds);
}

std::string RetrievalJson(const Job& job, const RetrievalReport& report) {
  Json json = Head(job, report.task);
  json["task_samples"] = report.samples;
  json["task_choices"] = report.choices;
  json["tokens"] = report.tokens;
  json.update(CellJson(report.Whole()));
  json["cells"] = Json::array();
  for (const RetrievalCell& cell : report.cells) json["cells"].push_back(CellJson(cell));
  json["seconds"] = report.seconds;
  json["tokens_per_second"] = static_cast<double>(report.tokens) / report.seconds;
  return json.dump(2) + "\n";
}

}  // namespace longspan
