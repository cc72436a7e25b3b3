#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "backend/cpu/peak.h"
#include "core/output.h"

namespace longspan::bench {
namespace {

// Rows appear as they are measured, also through a pipe.
template <class... Args>
void PrintLine(fmt::format_string<Args...> format, Args&&... args) {
  Answer(fmt::format(format, std::forward<Args>(args)...) + "\n");
}

}  // namespace

void Report::Peaks(const std::vector<DType>& dtypes, const std::vector<int>& threads) {
  for (const DType dtype : dtypes)
    for (const int n : threads) {
      const std::vector<cpu::PeakRate> constant = cpu::MeasurePeaks(dtype, n),
                                       random = cpu::MeasurePeaks(dtype, n, cpu::PeakOperands::kRandom);
      for (size_t i = 0; i < constant.size(); ++i)
        units_.push_back(
            {constant[i].unit, dtype, n, constant[i].flops_per_second, random[i].flops_per_second});
    }
  peak_ = MeasureCpuPeak(dtypes.front(), threads.back());
  if (json_) return;
  PrintLine("target {}; registers alone, GFLOP/s with constants and with random numbers:", CpuTargetName());
  for (const UnitPeak& unit : units_)
    PrintLine("  {:<9} {:<22} {:>4} thread{} {:>9.1f} {:>9.1f}", Name(unit.dtype), unit.unit, unit.threads,
              unit.threads == 1 ? " " : "s", unit.flops_per_second / 1e9, unit.random_flops_per_second / 1e9);
}

void Report::Add(const Case& row) {
  if (!json_ && cases_.empty())
    PrintLine("\n{:<14} {:<15} {:<9} {:<26} {:>7} {:>9} {:>8} {:>10}   min … max", "case", "pass", "dtype",
              "shape", "threads", "GFLOP/s", "of peak", "median s");
  cases_.push_back(row);
  if (json_) return;
  const Measured& m = row.measured;
  std::string figures;
  for (const Figure& figure : row.figures)
    if (figure.format)
      figures += (figures.empty() ? "   " : ", ") +
                 std::visit([&](auto value) { return fmt::format(fmt::runtime(figure.format), value); },
                            figure.value);
  PrintLine("{:<14} {:<15} {:<9} {:<26} {:>7} {:>9.1f} {:>8.3f} {:>10.5f}   {:.5f} … {:.5f}{}", row.name,
            row.pass, Name(row.dtype), row.shape, row.threads, row.flops / m.seconds / 1e9,
            row.FractionOfPeak(), m.seconds, m.seconds_min, m.seconds_max, figures);
}

void Report::Add(const AccuracyCase& c, const Accuracy& accuracy) {
  if (!json_ && accuracies_.empty())
    PrintLine(
        "\ngradients, bfloat16, relative to float64 on the same inputs:\n{:<20} {:<26} {:>9} {:>9} {:>9}",
        "case", "shape", "dQ", "dK", "dV");
  accuracies_.emplace_back(c, accuracy);
  if (json_) return;
  const auto text = [](std::optional<double> error) { return error ? fmt::format("{:.2e}", *error) : "-"; };
  PrintLine("{:<20} {:<26} {:>9} {:>9} {:>9}", c.name,
            fmt::format("T {}, D {}, heads {}/{}", c.length, c.head_dim, c.query_heads, c.kv_heads),
            text(accuracy.dq), text(accuracy.dk), text(accuracy.dv));
}

std::vector<Report::PassMedian> Report::Medians() const {
  std::map<std::tuple<DType, int, std::string>, std::vector<double>> fractions;
  for (const Case& row : cases_)
    fractions[{row.dtype, row.threads, row.pass}].push_back(row.FractionOfPeak());
  std::vector<PassMedian> medians;
  for (const auto& [key, values] : fractions)
    medians.push_back({std::get<2>(key), std::get<0>(key), std::get<1>(key),
                       static_cast<int64_t>(values.size()), Median(values)});
  return medians;
}

void Report::Finish(bool medians) {
  const std::vector<PassMedian> rows = medians ? Medians() : std::vector<PassMedian>();
  if (json_) return PrintJson(rows);
  if (medians) PrintLine("\nmedian fraction of peak over the shapes:");
  for (const PassMedian& row : rows)
    PrintLine("  {:<15} {:<9} {:>3} thread{} {:>3} shapes {:>7.3f}", row.pass, Name(row.dtype), row.threads,
              row.threads == 1 ? " " : "s", row.num_cases, row.fraction_of_peak);
}

void Report::PrintJson(const std::vector<PassMedian>& medians) const {
  using Json = nlohmann::ordered_json;
  Json json = {{"peak_gflops", peak_.flops_per_second / 1e9}, {"unit", peak_.unit}};
  json["target"] = CpuTargetName();
  for (const UnitPeak& unit : units_)
    json["units"].push_back({{"unit", unit.unit},
                             {"dtype", Name(unit.dtype)},
                             {"threads", unit.threads},
                             {"gflops", unit.flops_per_second / 1e9},
                             {"gflops_random", unit.random_flops_per_second / 1e9}});
  json["cases"] = Json::array();
  for (const Case& row : cases_) {
    const Measured& m = row.measured;
    Json entry = {{"name", row.name},
                  {"pass", row.pass},
                  {"dtype", Name(row.dtype)},
                  {"max_target_length", row.max_target_length},
                  {"head_dim", row.head_dim},
                  {"query_heads", row.query_heads},
                  {"kv_heads", row.kv_heads},
                  {"shape", row.shape},
                  {"threads", row.threads},
                  {"gflops", row.flops / m.seconds / 1e9},
                  {"fraction_of_peak", row.FractionOfPeak()},
                  {"peak_gflops", m.peak.flops_per_second / 1e9},
                  {"unit", m.peak.unit},
                  {"seconds", m.seconds},
                  {"seconds_min", m.seconds_min},
                  {"seconds_max", m.seconds_max}};
    for (const Figure& figure : row.figures)
      std::visit([&](auto value) { entry[figure.key] = value; }, figure.value);
    json["cases"].push_back(entry);
  }
  for (const auto& [c, accuracy] : accuracies_) {
    Json entry = {{"name", c.name},
                  {"max_target_length", c.length},
                  {"head_dim", c.head_dim},
                  {"query_heads", c.query_heads},
                  {"kv_heads", c.kv_heads},
                  {"key_offset", c.key_offset},
                  {"values_follow_keys", c.values_follow_keys},
                  {"true_output", c.true_output},
                  {"rows", std::min(c.rows, c.length)},
                  {"checksum", accuracy.checksum},
                  {"dq", accuracy.dq}};
    if (accuracy.dk) entry["dk"] = *accuracy.dk;
    if (accuracy.dv) entry["dv"] = *accuracy.dv;
    json["accuracy"].push_back(entry);
  }
  for (const PassMedian& row : medians)
    json["medians"].push_back({{"pass", row.pass},
                               {"dtype", Name(row.dtype)},
                               {"threads", row.threads},
                               {"shapes", row.num_cases},
                               {"fraction_of_peak", row.fraction_of_peak}});
  PrintLine("{}", json.dump(2));
}

}  // namespace longspan::bench
