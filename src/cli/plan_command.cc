#include "cli/plan_command.h"

#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "cli/hardware_keys.h"
#include "cli/help.h"
#include "cli/run_config.h"
#include "core/check.h"
#include "core/file.h"
#include "core/output.h"
#include "core/trace.h"
#include "plan/auto.h"
#include "plan/frontier.h"
#include "plan/plan.h"
#include "plan/report.h"
#include "plan/search.h"
#include "train/memory_advice.h"

namespace longspan {
namespace {

constexpr double kMostTokens = 1LL << 40;

std::string SearchAnswer(const PlanConfig& config, const Job& opened, const Hardware& hardware) {
  const SearchResult result = SearchPlans(opened, hardware);
  if (config.format == "html") return SearchPage(config.run, hardware, result);
  return config.format == "json" ? SearchJson(result) : SearchTable(result);
}

std::string FrontierAnswer(const PlanConfig& config, const Hardware& hardware) {
  const Frontier frontier = FindFrontier(config.run, config.document_length, hardware);
  if (config.format == "html") return FrontierPage(config.run, hardware, frontier);
  return config.format == "json" ? FrontierJson(frontier) : FrontierTable(frontier);
}

}  // namespace

KeyList PlanKeys(PlanConfig& config) {
  KeyList keys;
  keys.Group("Plan");
  keys.Add("hardware", &config.hardware,
           "The machine: a name that is known (--help lists them) or the path of a file like those in "
           "recipes/hardware. A rank is one of its devices.")
      .required = true;
  keys.Get("hardware").required_hint = fmt::format(" (known: {})", fmt::join(HardwareNames(), ", "));
  keys.Add("document_length", &config.document_length,
           "Tokens of each document that sequences are packed with; 0: a sequence is one document.",
           Between(0, kMostTokens));
  keys.Add("search", &config.search,
           "Plans every strategy, ring, ulysses and data parallel size for `ranks`; says which fit, which is "
           "fastest, and why the others lose.")
      .is_option = true;
  keys.Add("frontier", &config.frontier,
           "Finds the longest sequence for each number of devices up to `ranks`, and the speed of each "
           "length.")
      .is_option = true;
  keys.Add("format", &config.format,
           "A table, JSON (docs/reference/plan.md), or a page of HTML that needs nothing but itself.", {},
           {"table", "json", "html"})
      .is_option = true;
  keys.Add("trace", &config.trace,
           "The step's timeline is written to this file, for chrome://tracing or ui.perfetto.dev; empty: "
           "none.")
      .is_option = true;

  KeyList train = TrainKeys(config.run);
  train.Get("data_path").required = false;
  std::vector<std::string_view> names;
  for (const Key& key : train.keys())
    if (keys.Find(key.name) == nullptr) names.push_back(key.name);
  keys.AddFrom(train, names);
  return keys;
}

void PlanCommand(std::span<const std::string> arguments) {
  PlanConfig config;
  const KeyList keys = PlanKeys(config);
  if (WantsHelp(arguments))
    return Answer(
        CommandHelp("plan",
                    "Says what a run would take of a machine and how fast its steps would be: the "
                    "trainer itself, run dry. Takes training's keys and recipes; no text is opened.",
                    keys) +
        fmt::format("\nHardware known by name: {}\n", fmt::join(HardwareNames(), ", ")));
  LoadKeys("plan", keys, arguments);
  const Hardware hardware = LoadHardware(config.hardware);
  Require(ExitCode::kUsage, !config.search || !config.frontier,
          "--search and --frontier are two questions; give one");
  Require(ExitCode::kUsage, config.trace.empty() || !(config.search || config.frontier),
          "--trace is of one plan; leave out --search and --frontier");
  Require(ExitCode::kUsage, config.frontier || config.document_length <= config.run.max_target_length,
          "document_length {} is more than max_target_length {}, a sequence that holds whole documents",
          config.document_length, config.run.max_target_length);
  Job opened = OpenModel(config.run);  // once with its tokenizer, whose faults the run would meet
  opened.document_length = config.document_length;
  if (config.search) return Answer(SearchAnswer(config, opened, hardware));
  if (config.frontier) return Answer(FrontierAnswer(config, hardware));
  const AutoChoice choice = ChooseAuto(opened, FitOn(hardware), &hardware);
  opened.config = choice.config;
  const Job job = PrepareJobWithoutText(std::move(opened));
  Plan plan = MakePlan(job, hardware, !config.trace.empty());
  if (!plan.fits) plan.would_fit = WhatFits(job, FitOn(hardware));
  if (!config.trace.empty()) WriteFileAtomically(config.trace, ChromeTrace(plan.timeline.spans));
  Answer(config.format == "json"   ? PlanJson(job, hardware, plan, choice)
         : config.format == "html" ? PlanPage(job, hardware, plan, choice)
                                   : PlanTable(job, hardware, plan, choice));
}

}  // namespace longspan
