#include "train/run_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/format.h"
#include "core/machine.h"
#include "core/page.h"
#include "train/memory_budget.h"

namespace longspan {
namespace {

constexpr size_t kMostPoints = 400;   // of a curve: about two of a screen's
constexpr double kMostShown = 1e100;  // of what is measured: so that sums and differences are numbers

// What a step has of something, if it has it.
using Measure = std::function<std::optional<double>(const StepMetrics&)>;

// Of those that have a number that can be shown.
std::optional<double> MeanOf(std::span<const StepMetrics> steps, const Measure& measure) {
  double sum = 0;
  int64_t num = 0;
  for (const StepMetrics& step : steps) {
    const std::optional<double> value = measure(step);
    if (!value || !(std::abs(*value) <= kMostShown)) continue;
    sum += *value;
    ++num;
  }
  return num > 0 ? std::optional(sum / static_cast<double>(num)) : std::nullopt;
}

// Of a long run each point is the mean of as many steps, and stands at their last.
Plot::Series Curve(const std::string& name, std::span<const StepMetrics> steps, const Measure& measure) {
  Plot::Series series = {.name = name, .points = {}};
  const size_t steps_a_point = (steps.size() + kMostPoints - 1) / kMostPoints;
  for (size_t begin = 0; begin < steps.size(); begin += steps_a_point) {
    const auto part = steps.subspan(begin, std::min(steps_a_point, steps.size() - begin));
    const std::optional<double> mean = MeanOf(part, measure);
    if (!mean) continue;
    const int64_t first = part.front().step, last = part.back().step;
    const std::string label = first == last ? fmt::format("step {}: {:.5g}", last, *mean)
                                            : fmt::format("steps {} to {}: {:.5g}", first, last, *mean);
    series.points.push_back({static_cast<double>(last), *mean, std::nullopt, label});
  }
  return series;
}

// A heading and the curves that have points; nothing without any.
std::string PlotOf(const std::string& heading, const std::string& y_title, std::vector<Plot::Series> series) {
  std::erase_if(series, [](const Plot::Series& s) { return s.points.empty(); });
  if (series.empty()) return "";
  Plot plot;
  plot.x_title = "step";
  plot.y_title = y_title;
  plot.series = std::move(series);
  plot.linear_x = true;
  return fmt::format("<h2>{}</h2>\n", heading) + SvgPlot(plot);
}

std::optional<double> PercentOf(const std::optional<double>& fraction) {
  return fraction ? std::optional(100 * *fraction) : std::nullopt;
}

double OffloadWait(const StepMetrics& m) { return m.offload_wait_seconds.value_or(0); }

// What a step's time goes to, in the mean of a rank.
struct Part {
  std::string name;
  Measure seconds;
};
std::vector<Part> Parts(const Job& job) {
  // A rank alone waits for nobody else: what it sends to itself is part of what it does.
  const bool has_others = job.mesh.ranks() > 1;
  const auto for_others = [has_others](const StepMetrics& m) {
    return has_others ? m.communication_wait_seconds : 0;
  };
  std::vector<Part> parts = {
      {"computing", [=](const auto& m) { return m.step_seconds - for_others(m) - OffloadWait(m); }}};
  if (has_others) parts.push_back({"waiting for other ranks", for_others});
  if (job.offloads()) parts.push_back({"waiting for what is offloaded", OffloadWait});
  return parts;
}

std::string StepTime(const Job& job, std::span<const StepMetrics> steps) {
  std::vector<Plot::Series> curves = {Curve("step", steps, [](const auto& m) { return m.step_seconds; })};
  std::vector<Share> shares;
  const double whole = MeanOf(steps, [](const auto& m) { return m.step_seconds; }).value_or(0);
  for (const Part& part : Parts(job)) {
    const double seconds = MeanOf(steps, part.seconds).value_or(0);
    shares.push_back({part.name, fmt::format("{:.4g} s", seconds), whole > 0 ? seconds / whole : 0});
    curves.push_back(Curve(part.name, steps, part.seconds));
  }
  if (shares.size() == 1) curves.resize(1);  // all is computing
  return PlotOf("Step time by part", "seconds", std::move(curves)) + HtmlShares(shares);
}

std::string Memory(std::span<const StepMetrics> steps, const std::map<std::string, int64_t>& memory) {
  int64_t peak = 0;
  for (const StepMetrics& step : steps) peak = std::max(peak, step.memory_peak_bytes);
  const double total = static_cast<double>(std::max<int64_t>(TotalBytes(memory), 1));
  std::vector<Share> shares;
  for (const auto& [name, bytes] : LargestFirst(memory))
    shares.push_back({name, FormatBytes(bytes), static_cast<double>(bytes) / total});
  return fmt::format("<h2>Memory of a rank: {} at most</h2>\n", FormatBytes(peak)) + HtmlShares(shares);
}

// The traced steps by operation, the longest first; nothing if none was traced.
std::string Traced(const std::map<std::string, double>& seconds) {
  double total = 0;
  std::vector<Share> shares;
  for (const auto& [name, s] : seconds) {
    total += s;
    shares.push_back({name, fmt::format("{:.4g} s", s), s});
  }
  if (total == 0) return "";
  for (Share& share : shares) share.fraction /= total;
  std::ranges::stable_sort(shares, std::greater<>(), &Share::fraction);
  return "<h2>Traced steps of the first rank by operation</h2>\n" + HtmlShares(shares);
}

// Of the first and the last step that has it, and the mean.
std::string Figures(std::span<const StepMetrics> steps) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const char* name, const char* format, const Measure& measure) {
    const auto has = [&](const StepMetrics& step) { return MeanOf({&step, 1}, measure).has_value(); };
    const auto first = std::ranges::find_if(steps, has);
    if (first == steps.end()) return;
    const auto last = std::find_if(steps.rbegin(), steps.rend(), has);
    std::vector<std::string>& row = rows.emplace_back(1, name);
    for (const double value : {*measure(*first), *measure(*last), *MeanOf(steps, measure)})
      row.push_back(fmt::format(fmt::runtime(format), value));
  };
  add("loss", "{:.4f}", [](const auto& m) { return m.loss; });
  add("held-out loss", "{:.4f}", [](const auto& m) { return m.eval_loss; });
  add("gradient norm", "{:.4g}", [](const auto& m) { return m.grad_norm; });
  add("learning rate", "{:.3g}", [](const auto& m) { return m.learning_rate; });
  add("step time, s", "{:.4g}", [](const auto& m) { return m.step_seconds; });
  add("tokens/s a rank", "{:.1f}", [](const auto& m) { return m.tokens_per_second; });
  add("TFLOP/s a rank", "{:.4g}", [](const auto& m) { return m.tflops_per_second; });
  add("MFU, %", "{:.1f}", [](const auto& m) { return PercentOf(m.mfu); });
  add("HFU, %", "{:.1f}", [](const auto& m) { return PercentOf(m.hfu); });
  return HtmlTable({"", "first", "last", "mean"}, rows);
}

// Which steps left the weights as they were, and why; nothing if none did.
std::string Skipped(std::span<const StepMetrics> steps) {
  constexpr size_t kMostRows = 50;
  std::vector<std::vector<std::string>> rows;
  int64_t num_skipped = 0;
  for (const StepMetrics& step : steps) {
    if (step.skipped.empty()) continue;
    ++num_skipped;
    if (rows.size() < kMostRows) rows.push_back({fmt::format("{}: {}", step.step, step.skipped)});
  }
  if (rows.empty()) return "";
  return fmt::format("<h2>{} skipped</h2>\n", Plural(num_skipped, "step")) + HtmlTable({"step"}, rows);
}

}  // namespace

std::string RunPage(const Job& job, std::span<const StepMetrics> steps, const RankReport& rank,
                    const std::string& recipe) {
  CHECK(!steps.empty());
  const TrainConfig& c = job.config;
  const std::string subtitle =
      fmt::format("{}, {} parameters; {} of {} tokens a step; {} by {} on {}; step {} of {}", c.model_path,
                  Grouped(job.model.num_parameters()), Plural(c.global_batch_size, "sequence"),
                  Grouped(c.max_target_length), Plural(job.mesh.ranks(), "rank"),
                  fmt::join(std::set(job.strategies.begin(), job.strategies.end()), " and "), CpuModel(),
                  Grouped(steps.back().step), Grouped(c.steps));
  const std::string body =
      Figures(steps) + Skipped(steps) +
      PlotOf("Loss", "nats a token",
             {Curve("training", steps, [](const auto& m) { return m.loss; }),
              Curve("held-out", steps, [](const auto& m) { return m.eval_loss; })}) +
      PlotOf("Gradient norm, before clipping", "norm",
             {Curve("", steps, [](const auto& m) { return m.grad_norm; })}) +
      PlotOf("FLOPs of the machine's peak", "%",
             {Curve("MFU: useful ones", steps, [](const auto& m) { return PercentOf(m.mfu); }),
              Curve("HFU: all", steps, [](const auto& m) { return PercentOf(m.hfu); })}) +
      StepTime(job, steps) + Traced(rank.traced_seconds) + Memory(steps, rank.memory) +
      fmt::format("<h2>Keys</h2>\n<pre>{}</pre>\n", EscapeHtml(recipe));
  return HtmlPage(c.run_name, subtitle, body);
}

}  // namespace longspan
