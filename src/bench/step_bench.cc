// `bench step`: the whole step of one model by length. `bench strategies`: the same step on one rank and
// spread over ranks of one thread each, in turn.
#include <algorithm>

#include "bench/bench.h"
#include "bench/step.h"
#include "core/check.h"
#include "core/machine.h"
#include "parallel/strategy.h"

namespace longspan::bench {
namespace {

constexpr int64_t kLengths[] = {4096, 16384, 32768};
constexpr int64_t kRuns = 3;

// Without a length and ranks. `layers`: unless the settings say; 0: the model's own.
StepCase CaseOf(const Settings& settings, int64_t layers) {
  StepCase step;
  step.name = settings.model.empty() ? "100m" : settings.model;
  step.model = ParseModelConfig(BuiltinModelJson(step.name), step.name);
  step.model.SetNumLayers(ValueOr(settings.layers, ValueOr(layers, step.model.num_hidden_layers)));
  step.dtype = settings.DTypes({DType::kBFloat16})[0];
  return step;
}

// A rank that has less than one thread waits for another.
int64_t ThreadsPerRank(const Settings& settings, int64_t ranks) {
  const int64_t threads = ValueOr(settings.threads, std::max<int64_t>(ranks, NumCores() / ranks * ranks));
  Require(ExitCode::kUsage, threads % ranks == 0, "command line: threads {} is no multiple of ranks {}",
          threads, ranks);
  return threads / ranks;
}

struct StrategyCase {
  std::string_view name, strategy;
  int64_t ulysses;
  int64_t ranks_factor;  // of `ranks`; those beyond the cores share them
};
constexpr StrategyCase kStrategies[] = {{"ring", "ring", 0, 1},
                                        {"ulysses", "ulysses", 0, 1},
                                        {"all_gather", "all_gather", 0, 1},
                                        {"usp", "usp", 2, 2}};

}  // namespace

void RunStep(const Settings& settings, Report& report) {
  std::vector<int64_t> lengths(std::begin(kLengths), std::end(kLengths));
  if (settings.max_target_length != 0) lengths = {settings.max_target_length};
  StepCase step = CaseOf(settings, 0);
  step.ranks = ValueOr(settings.ranks, 1);
  step.threads_per_rank = ThreadsPerRank(settings, step.ranks);
  if (!settings.strategy.empty()) step.strategy = settings.strategy;

  report.Peaks({step.dtype},
               {static_cast<int>(std::min<int64_t>(NumCores(), step.ranks * step.threads_per_rank))});
  for (const int64_t length : lengths) {
    step.length = length;
    const MeasuredSteps measured = RunSteps(step, ValueOr(settings.runs, kRuns));
    std::vector<double> seconds;
    for (const StepMetrics& metrics : measured.steps) seconds.push_back(metrics.step_seconds);
    report.Add(StepRow(step, measured.steps.back(), Summarize(seconds, measured.peak)));
  }
  report.Finish(false);
}

void RunStrategies(const Settings& settings, Report& report) {
  constexpr int64_t kLayers = 2, kLength = 16384;
  const int64_t ranks = ValueOr(settings.ranks, std::max<int64_t>(2, NumCores()));

  StepCase one = CaseOf(settings, kLayers);
  one.name = "one_rank";
  one.length = ValueOr(settings.max_target_length, kLength);
  one.threads_per_rank = ThreadsPerRank(settings, ranks) * ranks;
  std::vector<StepCase> steps = {one};
  for (const StrategyCase& row : kStrategies) {
    StepCase step = one;
    step.name = row.name;
    step.strategy = row.strategy;
    step.ulysses = row.ulysses;
    step.ranks = ranks * row.ranks_factor;
    step.threads_per_rank = std::max<int64_t>(1, one.threads_per_rank / step.ranks);
    steps.push_back(step);
  }

  report.Peaks({one.dtype}, {static_cast<int>(std::min<int64_t>(NumCores(), one.threads_per_rank))});
  // In turn, so that what else the machine does meets all of them alike. A visit is two steps, of which the
  // second counts: the first touches the memory for the first time.
  std::vector<std::vector<double>> seconds(steps.size());
  std::vector<StepMetrics> last(steps.size());
  std::vector<CpuPeak> peaks(steps.size());
  for (int64_t round = 0; round < ValueOr(settings.runs, kRuns); ++round) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const MeasuredSteps measured = RunSteps(steps[i], 2);
      last[i] = measured.steps.back();
      seconds[i].push_back(last[i].step_seconds);
      if (measured.peak.flops_per_second > peaks[i].flops_per_second) peaks[i] = measured.peak;
    }
  }
  const double one_rank = Median(seconds[0]);
  for (size_t i = 0; i < steps.size(); ++i) {
    Case row = StepRow(steps[i], last[i], Summarize(seconds[i], peaks[i]));
    if (i > 0)
      row.figures.push_back(
          {"relative_to_one_rank", one_rank / row.measured.seconds, "{:.3f} of one rank's speed"});
    report.Add(row);
  }
  report.Finish(false);
}

}  // namespace longspan::bench
