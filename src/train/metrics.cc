#include "train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/check.h"
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
  return line.dump() + "\n";
}

MetricsLog::MetricsLog(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)) {
  Require(ExitCode::kResource, fd_ >= 0, "cannot open {}: {}", path, std::strerror(errno));
}

MetricsLog::~MetricsLog() { close(fd_); }

void MetricsLog::Append(const StepMetrics& metrics) {
  const std::string line = MetricsLine(metrics);
  const ssize_t written = write(fd_, line.data(), line.size());
  Require(ExitCode::kResource, written == static_cast<ssize_t>(line.size()), "cannot write {}: {}", path_,
          written < 0 ? std::strerror(errno) : "the disk took only a part; is it full?");
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
  if (m.step < last_step_)
    line += fmt::format("  {} left", Duration(mean_seconds_ * static_cast<double>(last_step_ - m.step)));
  // Lines with a held-out loss stay on the screen.
  open_ = terminal_ && !m.eval_loss;
  Show(fmt::format("{}{}{}", terminal_ ? "\r\033[K" : "", line, open_ ? "" : "\n"));
}

void Progress::EndLine() {
  if (open_) Show("\n");
  open_ = false;
}

}  // namespace longspan
