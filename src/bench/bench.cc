#include "bench/bench.h"

#include "core/check.h"
#include "core/names.h"

namespace longspan::bench {
namespace {

struct Subject {
  std::string_view name, summary;
  std::vector<Key> (*keys)();
  void (*run)(const Settings& settings, Report& report);
};

constexpr Subject kSubjects[] = {
    {"attention",
     "attention forward and backward, by length, head width and mask; how exact its gradients are",
     AttentionKeys, RunAttention},
    {"matmul", "the matrix products of two models' layers, forward and both gradients", MatmulKeys,
     RunMatmul},
    {"step", "a whole training step of a model of 100M parameters, by length; of_peak is its MFU", StepKeys,
     RunStep},
    {"strategies", "the step of a cut of that model on one rank, and spread over ranks by each strategy",
     StrategiesKeys, RunStrategies},
};

const Subject& FindSubject(std::span<const std::string> arguments) {
  std::vector<std::string_view> names;
  for (const Subject& subject : kSubjects) names.push_back(subject.name);
  Require(ExitCode::kUsage, !arguments.empty(), "bench of what?{}", Suggestion("", names).substr(1));
  for (const Subject& subject : kSubjects)
    if (subject.name == arguments[0]) return subject;
  throw Error(fmt::format("bench knows no '{}'{}", arguments[0], Suggestion(arguments[0], names)),
              ExitCode::kUsage);
}

}  // namespace

void Run(std::span<const std::string> arguments) {
  const Subject& subject = FindSubject(arguments);
  const Settings settings = ParseSettings(subject.name, subject.keys(), arguments.subspan(1));
  Report report(settings.json);
  subject.run(settings, report);
}

std::string Help() {
  std::string text =
      "Usage: longspan bench SUBJECT [key=value ...] [--format table|json]\n"
      "\n"
      "Measures this machine's peak, then each case: the median of some runs, GFLOP/s of useful work, and "
      "the\n"
      "fraction of what the CPU's best unit does in registers alone, measured around the runs.\n"
      "LONGSPAN_CPU_TARGET=NAME in the environment forces a CPU target.\n"
      "\n"
      "JSON is one object at the end: peak_gflops and unit, units (each unit's peak), cases (name, pass,\n"
      "sizes, threads, gflops, fraction_of_peak, seconds, ...), accuracy, medians.\n";
  for (const Subject& subject : kSubjects) {
    text += fmt::format("\n{}: {}\n", subject.name, subject.summary);
    for (const Key& key : subject.keys())
      text += fmt::format("  {:<18} {} ({})\n", key.name, key.meaning, Wanted(key));
  }
  return text;
}

}  // namespace longspan::bench
