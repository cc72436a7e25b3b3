#include "train/replica.h"

#include <algorithm>
#include <set>
#include <utility>

#include "comm/dry_comm.h"
#include "core/check.h"
#include "data/passes.h"
#include "model/sequence.h"
#include "parallel/ulysses.h"
#include "train/optimizer.h"
#include "train/trainer.h"

namespace longspan {
namespace {

ShardedWeights::Moments MomentsOf(const Job& job) {
  return job.forward_only ? ShardedWeights::Moments::kNoGradients : Optimizer::MomentsOf(job.config);
}

std::vector<std::unique_ptr<AttentionStrategy>> MakeStrategies(const Job& job, Mesh& mesh) {
  std::vector<std::unique_ptr<AttentionStrategy>> strategies;
  for (const std::string& name : job.strategies) strategies.push_back(FindStrategy(name).make(mesh));
  return strategies;
}

// The strategy of each layer is that of its kind.
std::vector<AttentionStrategy*> ByLayer(const ModelConfig& config,
                                        std::span<const std::unique_ptr<AttentionStrategy>> strategies) {
  std::vector<AttentionStrategy*> layers;
  for (const int kind : config.layer_kind_of) layers.push_back(strategies[static_cast<size_t>(kind)].get());
  return layers;
}

// Of a dry run, whose sequences have documents but no ids: a single pass.
Batch DryPass(const Job& job) {
  Batch pass;
  pass.documents = {{0, job.pass_length()}};
  return pass;
}

// A rank's sequences of a step: all of them in all their passes, or that one.
StepBatches DryBatches(const Job& job, bool whole_step) {
  StepBatches batches;
  batches.mine = {DryPass(job)};
  if (whole_step) {
    batches.mine[0].documents = job.EqualDocuments();
    batches.mine.resize(static_cast<size_t>(job.micro_steps()), batches.mine[0]);
  }
  batches.passes.assign(batches.mine.size(), 1);  // at least: as many as the documents take
  batches.num_targets = 1;
  return batches;
}

}  // namespace

Replica::Replica(const Job& job, std::unique_ptr<Backend> backend, Comm& world)
    : backend_(std::move(backend)),
      mesh_(MakeMesh(job.mesh, world)),
      layout_(job.MakeLayout()),
      strategies_(MakeStrategies(job, mesh_)),
      background_(job.offloads() && !backend_->dry() ? std::make_unique<Background>(job.io_hooks.before_each)
                                                     : nullptr),
      tier_(job.config.offload_directory, background_.get(), job.io_hooks, backend_->recorder(),
            backend_->shares_host_memory()),
      weights_(MakeParamTable(job.model), job.dtype, MomentsOf(job), backend_.get(),
               WeightRanks::Of(mesh_, job.config.shard_parameters), /*accumulates=*/job.has_several_passes(),
               {.tier = &tier_,
                .optimizer = job.config.optimizer_memory_host_offload,
                .parameters = job.config.parameter_memory_host_offload}),
      snapshot_(job.saves() ? std::make_unique<Snapshot>(weights_, *backend_) : nullptr),
      activations_(job.model, layout_.rows_per_rank(), job.dtype, job.activations, *backend_, tier_),
      watched_weights_(weights_, watch_),
      watched_activations_(activations_, watch_),
      model_(job.model, job.model_options(), *backend_, ByLayer(job.model, strategies_), watched_weights_,
             watched_activations_),
      loader_(job.model, job.model_options(), layout_, context_rank(), backend_->dry()) {
  tier_.Reserve();
}

int64_t Replica::NumPasses(const Batch& sequence) const {
  if (std::ssize(sequence.tokens) == layout_.length()) return 1;
  return std::ssize(PassesOf(sequence.documents, layout_.length()));
}

template <class F>
double Replica::OverPasses(const Batch& batch, int64_t num_passes, F f) {
  const int64_t length = layout_.length();
  // A dry run's sequence has no ids.
  const bool is_whole = backend_->dry() ? batch.documents.empty() || batch.documents.back().end <= length
                                        : std::ssize(batch.tokens) == length;
  if (is_whole && num_passes <= 1) return f(loader_.Load(batch));
  int64_t longest = 0;
  for (const Range& document : batch.documents) longest = std::max(longest, document.size());
  std::vector<Range> passes = PassesOf(batch.documents, length);
  if (std::ssize(passes) < num_passes) passes.resize(static_cast<size_t>(num_passes));  // without a row
  double sum = 0;
  for (const Range& rows : passes) sum += f(loader_.Load(TakePass(batch, rows, length), longest));
  return sum;
}

double Replica::Loss(const Batch& batch, int64_t num_passes) {
  return OverPasses(batch, num_passes, [&](const Sequence& pass) { return model_.Loss(pass); });
}

double Replica::LossAndGradients(const Batch& batch, double loss_scale, int64_t num_passes) {
  return OverPasses(batch, num_passes,
                    [&](const Sequence& pass) { return model_.LossAndGradients(pass, loss_scale); });
}

std::map<std::string, int64_t> Replica::MemoryByName() const {
  std::map<std::string, int64_t> bytes;
  for (const auto& [name, n] : weights_.memory().peak_by_name()) bytes[name] += n;
  for (const auto& [name, n] : backend_->arena().peak_by_name()) bytes["step." + name] += n;
  for (const ActivationRow& row : ActivationTable())
    if (activations_.resident().Kept(row.id))
      bytes["activations." + std::string(row.name)] += activations_.resident().num_bytes(row.id);
  if (activations_.in_flight_bytes() > 0) bytes["activations in flight"] += activations_.in_flight_bytes();
  bytes["rotary tables and tokens"] += loader_.num_bytes();
  return bytes;
}

std::map<std::string, int64_t> Replica::HostMemoryByName() const {
  std::map<std::string, int64_t> bytes;
  if (!tier_.on_disk()) bytes = tier_.BytesByName();
  if (snapshot_) bytes[std::string(Snapshot::kMemoryName)] = snapshot_->num_bytes();
  return bytes;
}

std::map<std::string, int64_t> Replica::DiskByName() const {
  return tier_.on_disk() ? tier_.BytesByName() : std::map<std::string, int64_t>();
}

int64_t Replica::memory_bytes() const {
  int64_t sum = 0;
  for (const auto& [name, n] : MemoryByName()) sum += n;
  return sum;
}

void Replica::LimitMemory(int64_t bytes) {
  const Arena& arena = backend_->arena();
  const int64_t others = memory_bytes() - arena.peak_bytes();
  Require(ExitCode::kResource, others <= bytes,
          "out of device memory: weights, activations and tables of a rank take {} bytes of {}", others,
          bytes);
  backend_->arena().Limit(bytes - others);
}

std::map<std::string, int64_t> DryRun::AllMemory() const {
  std::map<std::string, int64_t> all = memory;
  for (const auto& [name, bytes] : host_memory) all["host." + name] += bytes;
  return all;
}

int64_t SequenceBytes(const Job& job) {
  return job.micro_steps() * job.config.max_target_length * 2 * SizeOf(DType::kInt32);
}

DryRun RunDry(const Job& job, int rank, const DryRunOptions& options) {
  const std::unique_ptr<Comm> world = MakeDryComm(rank, job.mesh.ranks(), options.recorder);
  const int num_threads = static_cast<int>(job.config.threads_per_rank);
  Replica replica(job,
                  options.accelerator ? MakeDryAccelerator(options.recorder)
                                      : MakeDryBackend(num_threads, options.recorder),
                  *world);
  if (job.forward_only) {
    Arena& arena = replica.backend().arena();
    const Arena::Scope scope(arena);
    const int64_t rows = replica.layout().rows_per_rank();
    replica.TokenLosses(DryPass(job), arena.Allocate("token losses", DType::kFloat32, {rows}),
                        arena.Allocate("token losses", DType::kInt32, {rows}));
  } else {
    Optimizer optimizer(job.config, replica.backend(), replica.weights());
    TrainStep(replica, optimizer, DryBatches(job, /*whole_step=*/options.recorder != nullptr),
              job.config.learning_rate, /*step=*/1);
  }
  DryRun result;
  result.traffic = world->traffic();
  result.offload_bytes_written = replica.offload_bytes_written();
  result.update_bytes_written = replica.weights().state_bytes_written();
  if (job.config.eval_interval > 0 && options.recorder == nullptr) replica.Loss(DryPass(job));
  result.memory = replica.MemoryByName();
  result.host_memory = replica.HostMemoryByName();
  result.disk = replica.DiskByName();
  result.memory["sequences"] = SequenceBytes(job);
  // An evaluation takes memory as well, but is none of the step's work.
  if (job.config.eval_interval > 0 && options.recorder != nullptr)
    result.memory = RunDry(job, rank, {.accelerator = options.accelerator}).memory;
  return result;
}

// Of ranks that share a sequence one for each number of heads, the first; of groups the first.
DryRun RunDryOfLargest(const Job& job, bool accelerator) {
  const std::vector<int32_t> kv_of = KvHeads(job.model);
  std::vector<std::vector<HeadShare>> shares;  // by kind
  for (size_t kind = 0; kind < job.strategies.size(); ++kind)
    shares.push_back(DealHeads(kv_of, job.head_ranks(kind)));
  std::set<std::vector<int64_t>> seen;
  DryRun largest;
  int64_t largest_bytes = -1;
  for (int rank = 0; rank < job.mesh.context(); ++rank) {
    std::vector<int64_t> heads;
    for (const std::vector<HeadShare>& dealt : shares) {
      const HeadShare& its = dealt[static_cast<size_t>(rank) % dealt.size()];
      heads.insert(heads.end(), {its.query_heads.size(), its.kv_heads.size()});
    }
    if (!seen.insert(heads).second) continue;
    DryRun dry = RunDry(job, rank, {.accelerator = accelerator});
    int64_t bytes = 0;
    for (const auto& [name, n] : dry.memory) bytes += n;
    if (bytes > largest_bytes) {
      largest = std::move(dry);
      largest_bytes = bytes;
    }
  }
  return largest;
}

}  // namespace longspan
