#include "train/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/output.h"

namespace longspan {
namespace {

// "1:02:03", "2:03", "3 s".
std::string Duration(double seconds) {
  const int64_t s = std::llround(seconds);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  if (s >= 60) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{} s", s);
}

std::string Percent(const std::optional<double>& fraction) {
  return fraction ? fmt::format("{:.1f} %", 100 * *fraction) : "unknown";
}

constexpr int64_t kMostSteps = int64_t{1} << 50;  // plots tell them apart

std::optional<StepMetrics> ParseMetricsLine(std::string_view line) {
  const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return std::nullopt;
  const auto number = [&](const char* name) -> std::optional<double> {
    const auto found = row.find(name);
    return found != row.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
  };
  const auto count = [&](const char* name) -> std::optional<int64_t> {
    const auto found = row.find(name);
    const bool is_count = found != row.end() && found->is_number_unsigned() &&
                          found->get<uint64_t>() <= std::numeric_limits<int64_t>::max();
    return is_count ? std::optional(found->get<int64_t>()) : std::nullopt;
  };
  const int64_t step = count("step").value_or(0);
  if (step == 0 || step > kMostSteps) return std::nullopt;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  StepMetrics m;
  m.step = step;
  m.loss = number("loss").value_or(kNone);
  m.grad_norm = number("grad_norm").value_or(kNone);
  m.learning_rate = number("learning_rate").value_or(kNone);
  m.tokens = count("tokens").value_or(0);
  m.padding = number("padding").value_or(kNone);
  m.step_seconds = number("step_seconds").value_or(kNone);
  m.tokens_per_second = number("tokens_per_second").value_or(kNone);
  m.tflops_per_second = number("tflops_per_second").value_or(kNone);
  m.mfu = number("mfu");
  m.hfu = number("hfu");
  m.communication_wait_seconds = number("communication_wait_seconds").value_or(kNone);
  m.memory_peak_bytes = count("memory_peak_bytes").value_or(0);
  m.offload_bytes_written = count("offload_bytes_written");
  m.offload_wait_seconds = number("offload_wait_seconds");
  m.eval_loss = number("eval_loss");
  if (row.contains("skipped") && row["skipped"].is_string()) m.skipped = row["skipped"];
  return m;
}

}  // namespace

std::string MetricsLine(const StepMetrics& m) {
  const auto or_null = [](const std::optional<double>& x) {
    return x ? nlohmann::ordered_json(*x) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json line = {{"step", m.step},
                                 {"loss", m.loss},
                                 {"grad_norm", m.grad_norm},
                                 {"learning_rate", m.learning_rate},
                                 {"tokens", m.tokens},
                                 {"padding", m.padding},
                                 {"step_seconds", m.step_seconds},
                                 {"tokens_per_second", m.tokens_per_second},
                                 {"tflops_per_second", m.tflops_per_second},
                                 {"mfu", or_null(m.mfu)},
                                 {"hfu", or_null(m.hfu)},
                                 {"communication_wait_seconds", m.communication_wait_seconds},
                                 {"memory_peak_bytes", m.memory_peak_bytes}};
  if (m.offload_bytes_written) line["offload_bytes_written"] = *m.offload_bytes_written;
  if (m.offload_wait_seconds) line["offload_wait_seconds"] = *m.offload_wait_seconds;
  if (m.eval_loss) line["eval_loss"] = *m.eval_loss;
  if (!m.skipped.empty()) line["skipped"] = m.skipped;
  return line.dump() + "\n";
}

std::vector<StepMetrics> ReadStepMetrics(const std::string& path) {
  const std::string text = ReadTextFile(path);
  std::vector<StepMetrics> steps;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::optional<StepMetrics> step =
        ParseMetricsLine(std::string_view(text).substr(begin, end - begin));
    if (step) steps.push_back(*step);
    begin = end + 1;
  }
  return steps;
}

std::vector<Scalar> TensorBoardScalars(const StepMetrics& m, double gradient_clipping_threshold) {
  const double clipped =
      gradient_clipping_threshold > 0 ? std::min(m.grad_norm, gradient_clipping_threshold) : m.grad_norm;
  std::vector<Scalar> scalars = {{"learning/loss", m.loss},
                                 {"learning/raw_grad_norm", m.grad_norm},
                                 {"learning/grad_norm", clipped},
                                 {"learning/current_learning_rate", m.learning_rate},
                                 {"perf/step_time_seconds", m.step_seconds},
                                 {"perf/per_device_tflops_per_sec", m.tflops_per_second},
                                 {"perf/per_device_tokens_per_sec", m.tokens_per_second}};
  if (m.mfu) scalars.push_back({"perf/mfu", *m.mfu});
  if (m.eval_loss) scalars.push_back({"eval/avg_loss", *m.eval_loss});
  return scalars;
}

Progress::Progress(int64_t last_step) : last_step_(last_step), terminal_(isatty(STDOUT_FILENO) == 1) {}

Progress::~Progress() { EndLine(); }

void Progress::Print(const StepMetrics& m) {
  mean_seconds_ = mean_seconds_ == 0 ? m.step_seconds : 0.8 * mean_seconds_ + 0.2 * m.step_seconds;
  std::string line = fmt::format(
      "step {:>{}}/{}  loss {:.4f}  grad norm {:.3f}  lr {:.3g}  {:.0f} tokens/s/rank  "
      "{:.4f} TFLOP/s/rank  MFU {}  HFU {}",
      m.step, std::to_string(last_step_).size(), last_step_, m.loss, m.grad_norm, m.learning_rate,
      m.tokens_per_second, m.tflops_per_second, Percent(m.mfu), Percent(m.hfu));
  if (m.eval_loss) line += fmt::format("  eval loss {:.4f}", *m.eval_loss);
  if (!m.skipped.empty()) line += fmt::format("  skipped: {}", m.skipped);
  if (m.step < last_step_)
    line += fmt::format("  {} left", Duration(mean_seconds_ * static_cast<double>(last_step_ - m.step)));
  // Lines with a held-out loss stay on the screen, and those of skipped steps.
  open_ = terminal_ && !m.eval_loss && m.skipped.empty();
  Show(fmt::format("{}{}{}", terminal_ ? "\r\033[K" : "", line, open_ ? "" : "\n"));
}

void Progress::EndLine() {
  if (open_) Show("\n");
  open_ = false;
}

}  // namespace longspan
