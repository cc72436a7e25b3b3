#include "cli/bench_command.h"

#include <fmt/ranges.h>

#include "bench/cases.h"
#include "cli/help.h"
#include "core/check.h"
#include "core/names.h"
#include "core/output.h"
#include "parallel/strategy.h"

namespace longspan {
namespace {

using bench::Settings;

constexpr double kMostTokens = 1 << 24, kMostThreads = 4096, kMostRuns = 1000, kMostHeads = 1024;

NumberRange TableOr(double max) { return Or(0, Between(1, max)); }

void AddCommon(KeyList& keys, Settings& s, std::string_view runs) {
  keys.Add("dtype", &s.dtype, "Of everything but sums.", {}, {"float32", "bfloat16"});
  keys.Add("threads", &s.threads, "Threads at work, over all ranks.", TableOr(kMostThreads));
  keys.Add("runs", &s.runs, runs, TableOr(kMostRuns));
}

void AddAttentionKeys(KeyList& keys, Settings& s) {
  keys.Add("max_target_length", &s.max_target_length, "Tokens of the sequence.", TableOr(kMostTokens));
  keys.Add("head_dim", &s.head_dim, "Width of a head.", TableOr(1024));
  keys.Add("query_heads", &s.query_heads, "Query heads.", TableOr(kMostHeads));
  keys.Add("kv_heads", &s.kv_heads, "KV heads.", TableOr(kMostHeads));
  keys.Add("pass", &s.pass, "One of the passes, or how exact the gradients are, alone.", {},
           {"forward", "backward", "accuracy"});
  AddCommon(keys, s, "Timed runs of a case; 0: 5.");
}

void AddMatmulKeys(KeyList& keys, Settings& s) {
  std::vector<std::string_view> models;
  for (const bench::ModelCase& model : bench::ModelCases()) models.push_back(model.name);
  keys.Add("model", &s.model, "One of the models alone.", {}, models);
  keys.Add("max_target_length", &s.max_target_length, "Rows of x, that is tokens at a time.",
           TableOr(1 << 20));
  keys.Add("pass", &s.pass, "One of the passes alone.", {}, {"forward", "input_gradient", "weight_gradient"});
  AddCommon(keys, s, "Timed runs of a case; 0: 5.");
}

void AddStrategiesKeys(KeyList& keys, Settings& s) {
  keys.Add("model", &s.model, "A built-in model; empty: 100m.", {}, BuiltinModelNames());
  keys.Add("layers", &s.layers, "Layers of the model.", TableOr(1000));
  keys.Add("max_target_length", &s.max_target_length, "Tokens of the sequence.", TableOr(kMostTokens));
  keys.Add("ranks", &s.ranks, "Context-parallel ranks.", TableOr(1024));
  AddCommon(keys, s, "Timed steps of a case; 0: 3.");
}

void AddStepKeys(KeyList& keys, Settings& s) {
  AddStrategiesKeys(keys, s);
  std::vector<std::string_view> strategies;
  for (const StrategyRow& row : StrategyTable()) strategies.push_back(row.name);
  keys.Add("strategy", &s.strategy, "With more than one rank.", {}, strategies);
}

constexpr BenchSubject kSubjects[] = {
    {"attention",
     "attention forward and backward, by length, head width and mask; how exact its gradients are",
     AddAttentionKeys, bench::RunAttention},
    {"matmul", "the matrix products of two models' layers, forward and both gradients", AddMatmulKeys,
     bench::RunMatmul},
    {"step", "a whole training step of a model of 100M parameters, by length; of_peak is its MFU",
     AddStepKeys, bench::RunStep},
    {"strategies", "the step of a cut of that model on one rank, and spread over ranks by each strategy",
     AddStrategiesKeys, bench::RunStrategies},
};

std::string BenchHelp() {
  std::string text = CommandHelp(
      "bench",
      "Measures this machine's peak, then each case: the median of some runs, GFLOP/s of useful work, and "
      "the fraction of what the CPU's best unit does in registers alone, measured around the runs. A key "
      "replaces one dimension of the table of cases, for whose own values 0 and empty stand. "
      "LONGSPAN_CPU_TARGET=NAME in the environment forces a CPU target. JSON is one object at the end: "
      "peak_gflops and unit, units (each unit's peak), cases (name, pass, sizes, threads, gflops, "
      "fraction_of_peak, seconds, ...), accuracy, medians.",
      KeyList());
  for (const BenchSubject& subject : kSubjects) {
    Settings settings;
    text += fmt::format("\n{}: {}\n", subject.name, subject.summary) + KeyLines(BenchKeys(subject, settings));
  }
  return text;
}

}  // namespace

const BenchSubject& FindBenchSubject(std::string_view name) {
  std::vector<std::string_view> names;
  for (const BenchSubject& subject : kSubjects) names.push_back(subject.name);
  Require(ExitCode::kUsage, !name.empty(), "bench of what? One of {}", fmt::join(names, ", "));
  for (const BenchSubject& subject : kSubjects)
    if (subject.name == name) return subject;
  throw Error(fmt::format("bench knows no '{}'{}", name, Suggestion(name, names)), ExitCode::kUsage);
}

KeyList BenchKeys(const BenchSubject& subject, Settings& settings) {
  KeyList keys;
  subject.add_keys(keys, settings);
  keys.Add("format", &settings.format, "A table, or JSON.", {}, {"table", "json"}).is_option = true;
  return keys;
}

void BenchCommand(std::span<const std::string> arguments) {
  if (WantsHelp(arguments)) return Answer(BenchHelp());
  const BenchSubject& subject = FindBenchSubject(arguments.empty() ? std::string_view() : arguments[0]);
  Settings settings;
  LoadKeys("bench", BenchKeys(subject, settings), arguments.subspan(1));
  bench::Report report(settings.format == "json");
  subject.run(settings, report);
}

}  // namespace longspan
