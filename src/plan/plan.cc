#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/format.h"
#include "core/work_log.h"
#include "data/passes.h"
#include "model/flops.h"
#include "model/sequence.h"
#include "parallel/ulysses.h"
#include "train/replica.h"

namespace longspan {
namespace {

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
    plan.misfit = fmt::format("device memory: {} of {}", FormatBytes(plan.device_memory_bytes),
                              FormatBytes(plan.device_memory_limit));
  } else if (plan.host_memory_bytes > plan.host_memory_limit) {
    plan.misfit = fmt::format("host memory: {} of {} a device", FormatBytes(plan.host_memory_bytes),
                              FormatBytes(plan.host_memory_limit));
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

// The same step of as many sequences of such a length, with documents as long as the job's.
Job OfSequences(const Job& job, int64_t global_batch_size, int64_t max_target_length) {
  TrainConfig config = job.config;
  config.global_batch_size = global_batch_size;
  config.max_target_length = max_target_length;
  Job other = OfSameModel(job, config);
  other.document_length = job.EqualDocuments().front().size();
  return PrepareJobWithoutText(std::move(other));
}

// A group's sequences where the hardware's software runs them together: the documents of one sequence that is
// as long as all of them. Nothing where it doesn't, or there is but one; nor in passes, which no other
// software has.
std::optional<Job> Together(const Job& job, const Hardware& hardware) {
  const int64_t sequences = job.micro_steps(), length = job.config.max_target_length;
  if (!hardware.sequences_together || sequences == 1 || job.config.tokens_per_pass > 0) return std::nullopt;
  return OfSequences(job, job.mesh.groups(), sequences * length);
}

// All but time, of the rank that takes most.
Plan OfMemory(const Job& job, const Hardware& hardware) {
  Plan plan;
  SplitMemory(RunDryOfLargest(job, !hardware.is_cpu()), hardware.is_cpu(), plan);
  CheckFit(job, hardware, plan);
  return plan;
}

struct Timing {
  const Hardware& hardware;
  const Machine& rates;
  int rank;  // the busiest
  bool with_spans;
};

// Work, messages and time of a step.
void TimeStep(const Job& job, const Timing& timing, Plan& plan) {
  WorkLog log;
  const DryRun dry = RunDry(job, timing.rank, {.accelerator = !timing.hardware.is_cpu(), .recorder = &log});
  CountWork(log, plan);
  plan.bytes_sent = dry.traffic.bytes_sent;
  plan.messages_sent = dry.traffic.messages_sent;
  plan.timeline = Simulate(log, timing.rates, timing.rank, timing.with_spans);
}

// The same where micro-steps are many. From the second on each takes what the one before took, so two steps
// that differ by one tell how all others go on.
void TimeManyMicroSteps(const Job& job, const Timing& timing, Plan& plan) {
  constexpr int64_t kFew = 3;
  if (job.micro_steps() <= kFew || timing.with_spans) return TimeStep(job, timing, plan);
  const auto of = [&](int64_t micro_steps) {
    Plan few;
    TimeStep(OfSequences(job, micro_steps * job.mesh.groups(), job.config.max_target_length), timing, few);
    return few;
  };
  const Plan less = of(kFew - 1), more = of(kFew);
  const int64_t others = job.micro_steps() - kFew;
  const auto go_on = [&](auto& to, auto before, auto last) {
    to = last + static_cast<decltype(last)>(others) * (last - before);
  };
  go_on(plan.hardware_flops, less.hardware_flops, more.hardware_flops);
  go_on(plan.bytes_sent, less.bytes_sent, more.bytes_sent);
  go_on(plan.messages_sent, less.messages_sent, more.messages_sent);
  go_on(plan.host_bytes, less.host_bytes, more.host_bytes);
  go_on(plan.disk_bytes, less.disk_bytes, more.disk_bytes);
  Timeline& t = plan.timeline;
  const Timeline &a = less.timeline, &b = more.timeline;
  go_on(t.seconds, a.seconds, b.seconds);
  go_on(t.attention, a.attention, b.attention);
  go_on(t.matmul, a.matmul, b.matmul);
  go_on(t.pointwise, a.pointwise, b.pointwise);
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    go_on(t.busy[lane], a.busy[lane], b.busy[lane]);
    go_on(t.waited[lane], a.waited[lane], b.waited[lane]);
  }
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
  const Hardware hardware = RankHardware(job, machine);
  const std::optional<Job> together = Together(job, hardware);
  return OfMemory(together ? *together : job, hardware);
}

MemoryCheck FitOn(const Hardware& machine) {
  return [&machine](const Job& job) -> MemoryFit {
    Plan plan = PlanMemory(job, machine);
    return {plan.device_memory_bytes, plan.host_memory_bytes, std::move(plan.misfit)};
  };
}

Plan MakePlan(const Job& job, const Hardware& machine, bool with_spans) {
  const Hardware hardware = RankHardware(job, machine);
  const std::optional<Job> together = Together(job, hardware);
  const Job& as_run = together ? *together : job;
  Plan plan = OfMemory(as_run, hardware);
  plan.pairs_by_rank = PairsByRank(job);
  const Machine rates(hardware, job.mesh.ranks(), job.micro_steps());
  TimeManyMicroSteps(as_run, {hardware, rates, BusiestRank(plan), with_spans}, plan);
  plan.step_seconds = plan.timeline.seconds;
  plan.bound_by = plan.timeline.bound_by();

  const double sequences = static_cast<double>(job.config.global_batch_size), ranks = job.mesh.ranks();
  const StepFlops flops = CountFlops(job.model, job.mask, job.config.max_target_length, job.EqualDocuments());
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
