#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/work_log.h"
#include "data/passes.h"
#include "model/flops.h"
#include "model/sequence.h"
#include "parallel/ulysses.h"
#include "train/replica.h"

namespace longspan {
namespace {

std::string GiB(int64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

// Adds each context rank's pairs of one pass in all layers.
void AddPairs(const Job& job, const Layout& layout, const Documents& documents, std::vector<double>& pairs) {
  const std::vector<Range> keys = {{0, layout.length()}};
  const std::vector<int32_t> kv_of = KvHeads(job.model);
  for (size_t kind = 0; kind < job.model.layer_kinds.size(); ++kind) {
    const Mask mask = MakeMask(MaskOf(job.model.layer_kinds[kind], job.mask), documents);
    const double layers =
        static_cast<double>(std::ranges::count(job.model.layer_kind_of, static_cast<int>(kind)));
    const int head_ranks = job.head_ranks(kind);
    const std::vector<HeadShare> shares = DealHeads(kv_of, head_ranks);
    for (int first = 0; first < layout.num_ranks(); first += head_ranks) {
      std::vector<Range> rows;
      for (int rank = first; rank < first + head_ranks; ++rank)
        rows.insert(rows.end(), layout.spans(rank).begin(), layout.spans(rank).end());
      const double group = layers * static_cast<double>(mask.CountPairs(rows, keys));
      for (int u = 0; u < head_ranks; ++u)
        pairs[static_cast<size_t>(first + u)] +=
            group * static_cast<double>(shares[static_cast<size_t>(u)].query_heads.size()) /
            static_cast<double>(kv_of.size());
    }
  }
}

// Of each context rank: its pairs of a sequence in all layers and passes.
std::vector<double> PairsByRank(const Job& job) {
  const Layout layout = job.MakeLayout();
  const Documents documents = job.EqualDocuments();
  std::vector<double> pairs(static_cast<size_t>(layout.num_ranks()));
  for (const Range& pass : PassesOf(documents, layout.length())) {
    Documents inside;
    for (const Range& document : documents)
      if (pass.begin <= document.begin && document.end <= pass.end)
        inside.push_back({document.begin - pass.begin, document.end - pass.begin});
    AddPairs(job, layout, inside, pairs);
  }
  return pairs;
}

// What the ids of a step's sequences take is the host's memory where that is not the device's.
void SplitMemory(const DryRun& dry, bool is_cpu, Plan& plan) {
  plan.host_memory = dry.host_memory;
  plan.disk = dry.disk;
  for (const auto& [name, bytes] : dry.memory) {
    if (bytes == 0) continue;
    (name == "sequences" && !is_cpu ? plan.host_memory : plan.memory)[name] = bytes;
  }
  plan.device_memory_bytes = TotalBytes(plan.memory);
  plan.host_memory_bytes = TotalBytes(plan.host_memory);
}

void CheckFit(const Job& job, const Hardware& hardware, Plan& plan) {
  plan.device_memory_limit = hardware.usable_memory_bytes();
  plan.host_memory_limit = hardware.is_cpu()
                               ? std::max<int64_t>(0, plan.device_memory_limit - plan.device_memory_bytes)
                               : hardware.host_memory_bytes();
  if (const int64_t limit = job.device_memory_limit(); limit > 0)
    plan.device_memory_limit = std::min(plan.device_memory_limit, limit);
  if (plan.device_memory_bytes > plan.device_memory_limit) {
    plan.misfit =
        fmt::format("device memory: {} of {}", GiB(plan.device_memory_bytes), GiB(plan.device_memory_limit));
  } else if (plan.host_memory_bytes > plan.host_memory_limit) {
    plan.misfit = fmt::format("host memory: {} of {} a device", GiB(plan.host_memory_bytes),
                              GiB(plan.host_memory_limit));
  }
  plan.fits = plan.misfit.empty();
}

void CountWork(const WorkLog& log, Plan& plan) {
  for (const WorkLog::Entry& entry : log.entries()) {
    const Work& work = entry.work;
    if (entry.step == WorkLog::Step::kWait) continue;
    plan.hardware_flops += static_cast<double>(work.times) * work.flops;
    if (LaneOf(work.kind) == Lane::kHost) plan.host_bytes += work.times * work.bytes;
    if (LaneOf(work.kind) == Lane::kDisk) plan.disk_bytes += work.times * work.bytes;
  }
}

// The one that all others wait for; of a group of sequences, the first's.
int BusiestRank(const Plan& plan) {
  return static_cast<int>(std::ranges::max_element(plan.pairs_by_rank) - plan.pairs_by_rank.begin());
}

// All but what time has to do with, on a rank's hardware; its work goes to `log`, if there is one.
Plan StartPlan(const Job& job, const Hardware& hardware, WorkLog* log) {
  Plan plan;
  plan.pairs_by_rank = PairsByRank(job);
  const DryRun dry = RunDry(job, BusiestRank(plan), {.accelerator = !hardware.is_cpu(), .recorder = log});
  SplitMemory(dry, hardware.is_cpu(), plan);
  CheckFit(job, hardware, plan);
  plan.bytes_sent = dry.traffic.bytes_sent;
  plan.messages_sent = dry.traffic.messages_sent;
  return plan;
}

}  // namespace

double Plan::balance() const {
  const double sum = std::accumulate(pairs_by_rank.begin(), pairs_by_rank.end(), 0.0);
  return sum == 0
             ? 1
             : *std::ranges::max_element(pairs_by_rank) * static_cast<double>(pairs_by_rank.size()) / sum;
}

Hardware RankHardware(const Job& job, const Hardware& machine) {
  return machine.OfRank(job.mesh.ranks(), job.config.threads_per_rank);
}

Plan PlanMemory(const Job& job, const Hardware& machine) {
  return StartPlan(job, RankHardware(job, machine), nullptr);
}

MemoryCheck FitOn(const Hardware& machine) {
  return [&machine](const Job& job) -> MemoryFit {
    Plan plan = PlanMemory(job, machine);
    return {plan.device_memory_bytes, plan.host_memory_bytes, std::move(plan.misfit)};
  };
}

Plan MakePlan(const Job& job, const Hardware& machine, bool with_spans) {
  const Hardware hardware = RankHardware(job, machine);
  const Documents documents = job.EqualDocuments();
  WorkLog log;
  Plan plan = StartPlan(job, hardware, &log);
  CountWork(log, plan);

  const Machine rates(hardware, job.mesh.ranks(), job.micro_steps());
  plan.timeline = Simulate(log, rates, BusiestRank(plan), with_spans);
  plan.step_seconds = plan.timeline.seconds;
  plan.bound_by = plan.timeline.bound_by();

  const double sequences = static_cast<double>(job.config.global_batch_size), ranks = job.mesh.ranks();
  const StepFlops flops = CountFlops(job.model, job.mask, job.config.max_target_length, documents);
  plan.useful_flops = sequences * flops.useful;
  plan.maxtext_flops = sequences * flops.maxtext;
  const double peak_of_all =
      job.config.peak_tflops > 0 ? 1e12 * job.config.peak_tflops : ranks * hardware.peak_flops(job.dtype);
  plan.mfu = plan.useful_flops / plan.step_seconds / peak_of_all;
  plan.mfu_maxtext = plan.maxtext_flops / plan.step_seconds / peak_of_all;
  plan.hfu = ranks * plan.hardware_flops / plan.step_seconds / peak_of_all;
  plan.tokens_per_second_per_device =
      sequences * static_cast<double>(job.config.max_target_length) / plan.step_seconds / ranks;
  return plan;
}

}  // namespace longspan
