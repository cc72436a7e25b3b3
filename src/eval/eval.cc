#include "eval/eval.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/check.h"
#include "core/file.h"
#include "core/names.h"
#include "core/output.h"
#include "eval/report.h"
#include "train/memory_budget.h"

namespace longspan {
namespace {

constexpr int64_t kPackedLength = 4096;  // short cases are put together in sequences of so many rows

// "4096,8192" as numbers from `least` to `most`.
std::vector<double> ParseList(std::string_view key, const std::string& text, double least, double most) {
  std::vector<double> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    double number = 0;
    const char *first = text.data() + begin, *last = text.data() + end;
    const auto [stop, error] = std::from_chars(first, last, number);
    Require(ExitCode::kUsage, error == std::errc() && stop == last && number >= least && number <= most,
            "{} wants numbers from {} to {} with commas between, got '{}'", key, least, most,
            Shortened(text, 200));
    Require(ExitCode::kUsage, numbers.empty() || numbers.back() < number,
            "{} wants numbers in ascending order, got '{}'", key, Shortened(text, 200));
    numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

void RequireUnset(const EvalConfig& config, std::string_view key, const std::string& value) {
  Require(ExitCode::kUsage, value.empty(), "{} is '{}', which task={} does not use; leave it out", key,
          Shortened(value, 200), config.task);
}

void Publish(const EvalConfig& config, const std::string& table, const std::string& json,
             const std::string& page) {
  if (!config.html.empty()) WriteFileAtomically(config.html, page);
  Answer(config.format == "json" ? json : table);
}

Job OpenEvaluated(const EvalConfig& config) {
  Job job = OpenTrainedModel(config.run);
  if (job.config.max_target_length == 0) job.config.max_target_length = job.model.max_position_embeddings;
  return job;
}

void EvaluateText(const EvalConfig& config) {
  RequireUnset(config, "task_path", config.task_path);
  RequireUnset(config, "task_lengths", config.task_lengths);
  RequireUnset(config, "task_depths", config.task_depths);
  Require(ExitCode::kUsage, !config.data_path.empty(),
          "data_path is not set; give a text file, a JSONL file or a folder");
  Job opened = OpenEvaluated(config);
  opened.config.data_path = {{"", config.data_path}};
  const Job job = PrepareJob(std::move(opened));
  RequireMemory(job, RunDry(job, 0).memory);
  const LossReport report = MeasureLoss(job);
  Publish(config, LossTable(job, report), LossJson(job, report), LossPage(job, report));
}

CaseSpec SpecOf(const EvalConfig& config, const Task& task, int64_t length) {
  CaseSpec spec = {.lengths = {length},
                   .depths = {0, 0.25, 0.5, 0.75, 1},
                   .samples = config.task_samples,
                   .choices = config.task_choices,
                   .seed = static_cast<uint64_t>(config.task_seed)};
  if (!config.task_lengths.empty()) {
    spec.lengths.clear();
    for (const double number : ParseList("task_lengths", config.task_lengths, 1, 1 << 30)) {
      Require(ExitCode::kUsage, number == std::floor(number), "task_lengths wants whole numbers, got {}",
              number);
      spec.lengths.push_back(static_cast<int64_t>(number));
    }
  }
  if (!config.task_depths.empty()) {
    Require(ExitCode::kUsage, task.has_depth(),
            "task_depths is '{}', but the answer of task={} is spread over the whole text; leave it out",
            Shortened(config.task_depths, 200), config.task);
    spec.depths.clear();
    for (const double percent : ParseList("task_depths", config.task_depths, 0, 100))
      spec.depths.push_back(percent / 100);
  }
  return spec;
}

void EvaluateTask(const EvalConfig& config) {
  const TaskRow& row = FindTask(config.task);
  RequireUnset(config, "data_path", config.data_path);
  if (row.takes_path)
    Require(ExitCode::kUsage, !config.task_path.empty(), "task={} needs task_path, its file", config.task);
  else
    RequireUnset(config, "task_path", config.task_path);
  const std::unique_ptr<Task> task = row.make(config.task_path);

  Job job = OpenEvaluated(config);
  const std::vector<Case> cases =
      MakeCases(*task, *job.tokenizer, SpecOf(config, *task, job.config.max_target_length));
  int64_t longest = 0, rows = 0;
  for (const Case& one : cases) {
    longest = std::max(longest, one.num_rows());
    rows += one.num_rows();
  }
  job.config.max_target_length = std::max(longest, std::min(rows, kPackedLength));
  if (job.config.context_parallel_layout == "auto")
    job.config.context_parallel_layout = Name(rows > longest ? LayoutKind::kStriped : LayoutKind::kZigzag);
  job = PrepareJobWithoutText(std::move(job));
  RequireMemory(job, RunDry(job, 0).memory);

  double seconds = 0;
  const auto scores = ScoreCases(job, cases, &seconds);
  RetrievalReport report = Summarize(config.task, cases, scores, task->has_depth());
  report.choices = config.task_choices;
  report.samples = config.task_samples;
  report.seconds = seconds;
  Publish(config, RetrievalTable(job, report), RetrievalJson(job, report), RetrievalPage(job, report));
}

}  // namespace

void Evaluate(const EvalConfig& config) {
  if (config.task == "loss")
    EvaluateText(config);
  else
    EvaluateTask(config);
}

}  // namespace longspan
