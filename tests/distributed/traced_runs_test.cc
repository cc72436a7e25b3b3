// Runs that are traced: not a bit of them changes, and the trace says what the dry run says, and when.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/trace.h"
#include "core/work_log.h"
#include "support/files.h"
#include "support/runs.h"
#include "support/tiny.h"
#include "train/replica.h"

namespace longspan {
namespace {

using nlohmann::json;

struct Span {
  std::string name;
  double begin, end;  // microseconds
};

// Spans by rank and lane, in the order of their begins.
using Spans = std::map<int, std::map<std::string, std::vector<Span>>>;

Spans ReadTrace(const std::string& run) {
  const json trace = json::parse(ReadTextFile(run + "/profile/trace.json"));
  std::map<std::pair<int, int>, std::string> lanes;
  Spans spans;
  for (const json& event : trace["traceEvents"]) {
    const int rank = event["pid"];
    if (event["ph"] == "M" && event["name"] == "thread_name")
      lanes[{rank, event["tid"].get<int>()}] = event["args"]["name"].get<std::string>();
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    spans[rank][lanes.at({rank, event["tid"].get<int>()})].push_back(
        {event["name"].get<std::string>(), begin, begin + event["dur"].get<double>()});
  }
  for (auto& [rank, of_rank] : spans)
    for (auto& [lane, of_lane] : of_rank) std::ranges::stable_sort(of_lane, {}, &Span::begin);
  return spans;
}

bool IsWait(const Span& span) { return span.name.starts_with("wait"); }

// "lane: name" of all but waits, of which it is chance whether there are any.
std::set<std::string> NamesOf(const std::map<std::string, std::vector<Span>>& of_rank) {
  std::set<std::string> names;
  for (const auto& [lane, spans] : of_rank)
    for (const Span& span : spans)
      if (!IsWait(span)) names.insert(fmt::format("{}: {}", lane, span.name));
  return names;
}

// The same of a dry run.
std::set<std::string> NamesOf(const WorkLog& log) {
  std::set<std::string> names;
  for (const WorkLog::Entry& entry : log.entries()) {
    if (entry.step == WorkLog::Step::kWait) continue;
    const Work& work = entry.work;
    const std::string_view name = entry.step == WorkLog::Step::kCompute ? work.name : Name(work.kind);
    names.insert(fmt::format("{}: {}", Name(TraceLaneOf(work.kind)), name));
  }
  return names;
}

double Sum(const std::vector<Span>& spans) {
  double sum = 0;
  for (const Span& span : spans) sum += span.end - span.begin;
  return sum;
}

class Profiles : public ::testing::Test {
 protected:
  Profiles() {
    ModelConfig model = testing::TiedTinyConfig(true);
    model.SetNumLayers(4);
    testing::WriteModel(directory_ / "model", model, /*seed=*/7);
    testing::WriteDocuments(directory_ / "data.jsonl", std::vector<int64_t>(40, 15), model.vocab_size);
    std::filesystem::create_directory(directory_ / "tier");
  }

  TrainConfig Config(const std::string& strategy, int64_t ranks, const std::string& dtype) const {
    TrainConfig config = testing::FiveSteps(directory_ / "model", directory_ / "data.jsonl",
                                            directory_ / "runs", dtype, ranks);
    config.context_parallel_strategy = {{"", strategy}};
    return config;
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(Profiles, ChangeNoBitAndShowWhatTheDryRunDoes) {
  std::vector<TrainConfig> configs = {
      Config("ring", 1, "bfloat16"),    Config("ring", 3, "bfloat16"), Config("all_gather", 2, "float32"),
      Config("ulysses", 2, "bfloat16"), Config("usp", 4, "float32"),   Config("ring", 2, "bfloat16"),
      Config("ring", 4, "bfloat16"),    Config("ring", 2, "float32"),  Config("ring", 2, "bfloat16")};
  configs[5].remat_policy = "custom";
  configs[5].decoder_layer_input = configs[5].context = "offload";
  configs[6].shard_parameters = true;
  configs[6].fsdp_parallelism = 2;
  configs[6].global_batch_size = 4;
  configs[7].tokens_per_pass = 33;
  configs[7].opt_type = "sgd";
  configs[8].remat_policy = "minimal_offloaded";
  configs[8].offload_directory = directory_ / "tier";
  for (size_t i = 0; i < configs.size(); ++i) {
    SCOPED_TRACE(i);
    TrainConfig config = configs[i];
    config.run_name = fmt::format("plain{}", i);
    const testing::Outcome wanted = testing::OutcomeOf(testing::TrainQuietly(config));
    config.run_name = fmt::format("traced{}", i);
    config.profile = true;
    Job job = PrepareJob(config);
    const std::string run = testing::TrainQuietly(job);
    EXPECT_TRUE(testing::OutcomeOf(run) == wanted);

    const Spans spans = ReadTrace(run);
    ASSERT_EQ(std::ssize(spans), job.mesh.ranks());
    if (config.tokens_per_pass > 0) job.document_length = 15;
    for (int rank = 0; rank < job.mesh.ranks(); ++rank) {
      WorkLog log;
      RunDry(job, rank, {.recorder = &log});
      EXPECT_EQ(NamesOf(spans.at(rank)), NamesOf(log)) << "rank " << rank;
    }

    double first = 1e30;
    for (const auto& [rank, lanes] : spans) {
      for (const auto& [lane, of_lane] : lanes) {
        double last = 0;
        for (const Span& span : of_lane) {
          EXPECT_GE(span.begin, last - 0.002) << "rank " << rank << ", " << lane << ", " << span.name;
          EXPECT_GE(span.end, span.begin);
          last = span.end;
        }
        first = std::min(first, of_lane.front().begin);
      }
    }
    EXPECT_EQ(first, 0);

    // A rank computes or waits within its steps. (Others than the first may begin theirs earlier.)
    const std::vector<json> steps = testing::ReadMetrics(run);
    ASSERT_EQ(steps.size(), 5u);
    const double seconds = steps[1]["step_seconds"].get<double>() + steps[2]["step_seconds"].get<double>();
    EXPECT_LE(Sum(spans.at(0).at("compute")), 1e6 * seconds);
  }
}

// Where operations are large, a step is hardly anything else.
TEST_F(Profiles, OperationsAndWaitsFillTheStep) {
  TrainConfig config = Config("ring", 2, "bfloat16");
  config.model_path = "tiny";
  config.max_target_length = 4096;
  config.mlp_chunk_length = config.loss_chunk_length = 1024;
  config.steps = 2;
  config.profile = true;
  config.profiler_steps = 5;  // of which the run has one
  config.enable_checkpointing = false;
  config.run_name = "filled";
  const std::string run = testing::TrainQuietly(config);
  const double seconds = testing::ReadMetrics(run).at(1)["step_seconds"];
  for (const auto& [rank, lanes] : ReadTrace(run)) {
    const std::vector<Span>& compute = lanes.at("compute");
    const double extent = compute.back().end - compute.front().begin;
    EXPECT_GT(Sum(compute), 0.8 * extent) << "rank " << rank;
    EXPECT_LE(Sum(compute), extent);
    EXPECT_GT(extent, 0.8e6 * seconds) << "rank " << rank;
  }
}

}  // namespace
}  // namespace longspan
