#include "bench/step.h"

#include <algorithm>

#include "bench/cases.h"
#include "core/machine.h"
#include "train/trainer.h"

namespace longspan::bench {
namespace {

int NumThreads(const StepCase& step) {
  return static_cast<int>(std::min<int64_t>(NumCores(), step.ranks * step.threads_per_rank));
}

Job MakeJob(const StepCase& step, int64_t num_steps) {
  TrainConfig config;
  config.run_name = "bench";
  config.enable_checkpointing = false;
  config.max_target_length = step.length;
  config.steps = num_steps;
  config.ranks = step.ranks;
  config.threads_per_rank = step.threads_per_rank;
  config.context_parallel_strategy = {{"", step.strategy}};
  config.ulysses_parallelism = step.ulysses;
  config.dtype = Name(step.dtype);
  // A token more than the steps read, in a sequence of its own behind them: every row of theirs has a target.
  config.enable_data_shuffling = false;
  return PrepareJob(config, step.model, MakeRandomCorpus(num_steps * step.length + 1, step.model.vocab_size));
}

}  // namespace

MeasuredSteps RunSteps(const StepCase& step, int64_t num_steps) {
  constexpr int kBursts = 3;  // on either side
  MeasuredSteps measured;
  const auto measure_peak = [&] {
    for (int burst = 0; burst < kBursts; ++burst) {
      const CpuPeak peak = MeasureCpuPeak(step.dtype, NumThreads(step));
      if (peak.flops_per_second > measured.peak.flops_per_second) measured.peak = peak;
    }
  };
  const Job job = MakeJob(step, num_steps);
  measure_peak();
  measured.steps = MeasureSteps(job, 0);
  measure_peak();
  return measured;
}

Case StepRow(const StepCase& step, const StepMetrics& metrics, const Measured& seconds) {
  const double tokens = static_cast<double>(metrics.tokens);
  return {.name = step.name,
          .pass = "step",
          .shape = fmt::format("T {}, layers {}, {} × {}", step.length, step.model.num_hidden_layers,
                               step.ranks, step.threads_per_rank),
          .dtype = step.dtype,
          .max_target_length = step.length,
          .head_dim = step.model.head_dim,
          .query_heads = step.model.num_attention_heads,
          .kv_heads = step.model.num_key_value_heads,
          .threads = static_cast<int>(step.ranks * step.threads_per_rank),
          .flops = metrics.tflops_per_second * 1e12 * static_cast<double>(step.ranks) * metrics.step_seconds,
          .measured = seconds,
          .figures = {{"tokens_per_second", tokens / seconds.seconds, "{:.0f} tokens/s"},
                      {"ranks", step.ranks, nullptr},
                      {"layers", step.model.num_hidden_layers, nullptr},
                      {"memory_gib_a_rank", static_cast<double>(metrics.memory_peak_bytes) / (1 << 30),
                       "{:.2f} GiB a rank"}}};
}

}  // namespace longspan::bench
