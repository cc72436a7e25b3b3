#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/profiled_backend.h"
#include "comm/thread_comm.h"
#include "core/clock.h"
#include "core/format.h"
#include "core/output.h"
#include "core/report_error.h"
#include "core/stop_signals.h"
#include "model/flops.h"
#include "train/checkpoint.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_saver.h"
#include "train/checkpoint_verify.h"
#include "train/memory_budget.h"
#include "train/metrics.h"
#include "train/not_finite.h"
#include "train/optimizer.h"
#include "train/profile.h"
#include "train/replica.h"
#include "train/report.h"
#include "train/run_directory.h"
#include "train/run_log.h"
#include "train/schedule.h"

namespace longspan {

StepResult TrainStep(Replica& replica, Optimizer& optimizer, const StepBatches& batches, double learning_rate,
                     int64_t step, StepGuard* guard) {
  const double num_targets = static_cast<double>(batches.num_targets);
  double loss = 0;
  replica.weights().ZeroGradients();
  for (size_t micro = 0; micro < batches.mine.size(); ++micro)
    loss += replica.LossAndGradients(batches.mine[micro], 1 / num_targets, batches.passes[micro]);
  loss = replica.world().SumOverRanks(loss) / num_targets;
  const double grad_norm = optimizer.GradientNorm();
  StepResult result = {loss, grad_norm, ""};
  if (std::isfinite(loss) && std::isfinite(grad_norm)) {
    if (guard != nullptr) result.skipped = guard->Judge({loss, grad_norm});
  } else {
    const std::string first = FirstNotFinite(replica, batches);
    Require(guard != nullptr && guard->skips_nan(),
            "step {}: loss {} or gradient norm {} is not finite. The first tensor that isn't is {}; the "
            "weights were left as they were before this step. Lower learning_rate, look at the sequences of "
            "this step, or skip such steps with skip_step_on_nan=true",
            step, loss, grad_norm, first);
    result.skipped = fmt::format("{} is not finite", first);
  }
  if (result.skipped.empty()) optimizer.Update(learning_rate, grad_norm);
  return result;
}

namespace {

// One rank of a run.
class Trainer {
 public:
  // `profile` gets what the rank does in its steps; null: nothing is recorded. `signals` end Run; null: none
  // does. `hosts` are those of ranks that are processes, each with a profile of its own; empty: the ranks
  // share one. All outlive it.
  Trainer(const Job& job, Comm& world, double peak_flops, Profile* profile = nullptr,
          const StopSignals* signals = nullptr, std::span<const Host> hosts = {});
  ~Trainer() { replica_.world().set_recorder(nullptr); }  // the world outlives the profile
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // From `checkpoint`, or from the model's own weights if that is empty.
  void Start(const std::string& checkpoint);
  int64_t step() const { return step_; }  // updates done
  // The next step, with its evaluation where one is due.
  StepMetrics Advance();
  // The next step, for TakeStep.
  StepMetrics StepSeenBy(const SeeUnit& see);
  // All steps that are left, or those until a signal has reached any rank. Throws RankError.
  void Run();

 private:
  StepMetrics Step();
  StepBatches ReadBatches();
  // What a rank has done and waited for since it began.
  struct Tally {
    double seconds, matmul_flops, waited, offload_waited;  // waited: for other ranks
    int64_t offload_bytes_written;
  };
  Tally TallyNow();
  // Fills in what is measured rather than computed with, over the step between the two.
  void Measure(StepMetrics& metrics, const StepBatches& batches, const Tally& before, const Tally& after);
  std::map<std::string, int64_t> MemoryByName() const;  // of this rank, in the last step
  RankReport ReportOfRank();
  void EndStep(StepMetrics& metrics);  // collective
  double Evaluate();
  void TakeSteps(RunLog* log);  // null but on the first rank
  void Save(RunLog* log);
  // Throws the error of a save that failed, or warns of it.
  void Heed(const std::optional<CheckpointSaver::Ended>& save, RunLog* log);
  void WriteProfile();

  void RunSteps();

  bool IsLead() { return replica_.world().rank() == 0; }

  const Job& job_;
  const TrainConfig& config_;
  const double peak_flops_;
  Replica replica_;
  Optimizer optimizer_;
  StepGuard guard_;
  MixtureReader reader_;
  const std::span<const Host> hosts_;
  Profile* const profile_;
  const StopSignals* const signals_;
  int64_t first_step_ = 0, step_ = 0;  // updates done: at the start, now
  int64_t at_step_ = 0;                // the last one that was begun
  bool stops_ = false;                 // a signal has reached a rank
  std::unique_ptr<CheckpointSaver> saver_;
};

std::unique_ptr<Backend> MakeBackend(const Job& job, int rank, Profile* profile) {
  std::unique_ptr<Backend> backend = MakeCpuBackend(static_cast<int>(job.config.threads_per_rank));
  if (profile == nullptr) return backend;
  return MakeProfiledBackend(std::move(backend), profile->recorder(rank));
}

Comm& Reporting(const Job& job, Comm& world, Profile* profile) {
  if (job.message_recorder) world.set_recorder(job.message_recorder(world));
  if (profile != nullptr) world.set_recorder(&profile->recorder(world.rank()));
  return world;
}

Trainer::Trainer(const Job& job, Comm& world, double peak_flops, Profile* profile, const StopSignals* signals,
                 std::span<const Host> hosts)
    : job_(job),
      config_(job.config),
      peak_flops_(peak_flops),
      replica_(job, MakeBackend(job, world.rank(), profile), Reporting(job, world, profile)),
      optimizer_(config_, replica_.backend(), replica_.weights()),
      guard_(config_),
      reader_(job.MakeReader()),
      hosts_(hosts),
      profile_(profile),
      signals_(signals) {
  if (const int64_t limit = job.device_memory_limit(); limit > 0)
    replica_.LimitMemory(limit - SequenceBytes(job));
}

StepMetrics Trainer::Step() {
  const bool is_profiled = profile_ != nullptr && profile_->Has(step_ - first_step_);
  const Tally before = TallyNow();
  if (is_profiled) profile_->recorder(replica_.world().rank()).Start();
  const StepBatches batches = ReadBatches();
  const double learning_rate = LearningRate(config_, step_);
  const StepResult result = TrainStep(replica_, optimizer_, batches, learning_rate, step_ + 1, &guard_);
  if (is_profiled) profile_->recorder(replica_.world().rank()).Stop();
  StepMetrics metrics;
  metrics.step = ++step_;
  metrics.loss = result.loss;
  metrics.grad_norm = result.grad_norm;
  metrics.skipped = result.skipped;
  metrics.learning_rate = learning_rate;
  Measure(metrics, batches, before, TallyNow());
  return metrics;
}

StepBatches Trainer::ReadBatches() {
  StepBatches batches;
  std::vector<std::pair<double, MixtureReader::Plan>> plans;  // with their attention's FLOPs
  for (int64_t i = 0; i < config_.global_batch_size; ++i) {
    MixtureReader::Plan plan = reader_.NextPlan();
    const StepFlops flops =
        CountFlops(job_.model, job_.mask, config_.max_target_length, SequenceReader::DocumentsOf(plan.pieces),
                   job_.activations.Keeps(Activation::kContext));
    batches.flops += flops;
    plans.emplace_back(flops.attention_hardware, std::move(plan));
  }
  // Groups wait for each other after each micro-step, so those of a micro-step get sequences of about equal
  // cost.
  std::ranges::stable_sort(plans, std::greater<>(), [](const auto& plan) { return plan.first; });
  for (size_t i = 0; i < plans.size(); ++i) {
    Batch batch = reader_.Read(plans[i].second);
    batches.num_tokens += batch.num_tokens;
    batches.num_targets += batch.num_targets;
    const size_t groups = static_cast<size_t>(job_.mesh.groups());
    if (i % groups == 0) batches.passes.push_back(0);
    batches.passes.back() = std::max(batches.passes.back(), replica_.NumPasses(batch));
    if (static_cast<int>(i % groups) == replica_.mesh().group()) batches.mine.push_back(std::move(batch));
  }
  Require(batches.num_targets > 0,
          "step {} has no target: none of its {} tokens is followed by one that counts; give longer "
          "documents, or "
          "look at loss_mask or labels",
          step_ + 1, batches.num_tokens);
  return batches;
}

Trainer::Tally Trainer::TallyNow() {
  const double offload_waited = replica_.offload_wait_seconds();
  return {.seconds = Now(),
          .matmul_flops = replica_.backend().matmul_flops(),
          .waited = replica_.world().wait_seconds() + replica_.backend().wait_seconds() - offload_waited,
          .offload_waited = offload_waited,
          .offload_bytes_written = replica_.offload_bytes_written()};
}

void Trainer::Measure(StepMetrics& metrics, const StepBatches& batches, const Tally& before,
                      const Tally& after) {
  const double seconds = after.seconds - before.seconds;
  double sums[4] = {after.matmul_flops - before.matmul_flops, after.waited - before.waited,
                    after.offload_waited - before.offload_waited,
                    static_cast<double>(after.offload_bytes_written - before.offload_bytes_written)};
  replica_.world().SumOverRanks(sums);
  const double ranks = job_.mesh.ranks();
  metrics.tokens = batches.num_tokens;
  const int64_t rows = config_.global_batch_size * config_.max_target_length;
  metrics.padding = static_cast<double>(rows - batches.num_tokens) / static_cast<double>(rows);
  metrics.step_seconds = seconds;
  metrics.tokens_per_second = static_cast<double>(batches.num_tokens) / seconds / ranks;
  metrics.tflops_per_second = batches.flops.useful / seconds / ranks / 1e12;
  if (peak_flops_ > 0) {
    metrics.mfu = batches.flops.useful / seconds / peak_flops_;
    metrics.hfu = (sums[0] + batches.flops.attention_hardware) / seconds / peak_flops_;
  }
  metrics.communication_wait_seconds = sums[1] / ranks;
  if (job_.offloads()) {
    metrics.offload_wait_seconds = sums[2] / ranks;
    metrics.offload_bytes_written = static_cast<int64_t>(sums[3]);
  }
}

std::map<std::string, int64_t> Trainer::MemoryByName() const {
  std::map<std::string, int64_t> memory = replica_.MemoryByName();
  memory["sequences"] = SequenceBytes(job_);
  return memory;
}

RankReport Trainer::ReportOfRank() {
  RankReport report = {.memory = MemoryByName()};
  if (profile_ != nullptr) report.traced_seconds = profile_->SecondsByName(replica_.world().rank());
  return report;
}

// What ranks tell each other at the end of a step: the memory of each, for that of the largest, and whether a
// signal has reached it. So all know alike whether they stop here.
void Trainer::EndStep(StepMetrics& metrics) {
  std::vector<double> sums(static_cast<size_t>(job_.mesh.ranks()) + 1);
  sums[static_cast<size_t>(replica_.world().rank())] = static_cast<double>(TotalBytes(MemoryByName()));
  sums.back() = signals_ != nullptr && signals_->caught();
  replica_.world().SumOverRanks(sums);
  stops_ = sums.back() > 0;
  sums.pop_back();
  metrics.memory_peak_bytes = static_cast<int64_t>(*std::max_element(sums.begin(), sums.end()));
}

// The mean loss over the held-out text, from its beginning, in file order: a sequence for each group, and the
// next ones. Groups that share weights gather them together, so all make as many passes.
double Trainer::Evaluate() {
  SequenceReader reader = job_.MakeEvalReader();
  double sums[2] = {0, 0};  // of losses (each rank's rows), of targets (once)
  int64_t num_read = 0;
  const auto is_left = [&] { return reader.position().epoch == 0 && num_read != config_.eval_steps; };
  while (is_left()) {
    Batch mine;  // without a row where there is none left for my group
    int64_t num_passes = 0;
    for (int group = 0; group < job_.mesh.groups() && is_left(); ++group, ++num_read) {
      Batch batch = reader.Next();
      if (job_.mesh.fsdp > 1) num_passes = std::max(num_passes, replica_.NumPasses(batch));
      if (IsLead()) sums[1] += static_cast<double>(batch.num_targets);
      if (group == replica_.mesh().group()) mine = std::move(batch);
    }
    sums[0] += replica_.Loss(mine, num_passes);
  }
  replica_.world().SumOverRanks(sums);
  CHECK(sums[1] > 0);  // PrepareJob has looked
  return sums[0] / sums[1];
}

void Trainer::Start(const std::string& checkpoint) {
  if (!checkpoint.empty()) {
    const CheckpointState state = LoadCheckpoint(checkpoint, replica_.weights());
    step_ = state.step;
    optimizer_.set_num_updates(state.optimizer_step);
    guard_.Restore(state.recent_steps);
    reader_.Seek(state.sources);
  } else if (!job_.model_directory.empty()) {
    LoadModelWeights(job_.model_directory, replica_.weights());
  } else {
    replica_.weights().Initialize(job_.model.initializer_range,
                                  static_cast<uint64_t>(config_.init_weights_seed));
  }
  // A run that was killed at its very end is complete, and who starts it again until it is hears so.
  const bool is_complete = step_ == config_.steps && config_.resume == "auto";
  Require(ExitCode::kUsage, step_ < config_.steps || is_complete,
          "the checkpoint {} is at step {} already and steps is {}; give a larger number of steps",
          checkpoint, step_, config_.steps);
  first_step_ = step_;
  if (is_complete) return;
  Require(ExitCode::kUsage,
          profile_ == nullptr || config_.steps - step_ > config_.skip_first_n_steps_for_profiler,
          "profile: of {} none would be traced, as skip_first_n_steps_for_profiler is {}; skip fewer, or "
          "give more steps",
          Plural(config_.steps - step_, "step"), config_.skip_first_n_steps_for_profiler);
}

SaveOptions OptionsOfSaves(const Job& job) {
  SaveOptions options;
  options.dtype = job.config.save_dtype == "bfloat16" ? DType::kBFloat16 : DType::kFloat32;
  options.max_shard_bytes = job.config.max_shard_bytes;
  options.max_num_to_keep = job.config.max_num_checkpoints_to_keep;
  options.config_json = WriteModelConfig(job.model, job.model_json, options.dtype);
  options.tokenizer_directory = job.tokenizer_directory;
  options.model_directory = job.model_directory;
  return options;
}

void Trainer::Heed(const std::optional<CheckpointSaver::Ended>& save, RunLog* log) {
  if (!save || save->error.empty()) return;
  if (save->is_saved) {
    if (log == nullptr) return;
    log->EndLine();
    return Remark(fmt::format("warning: after the checkpoint of step {} older ones were not removed: {}",
                              save->step, save->error));
  }
  Require(ExitCode::kResource, config_.on_checkpoint_error == "continue",
          "the checkpoint of step {} was not saved: {}; those before it are as they were", save->step,
          save->error);
  if (log == nullptr) return;
  log->EndLine();
  Remark(fmt::format("warning: the checkpoint of step {} was not saved: {}; training goes on", save->step,
                     save->error));
}

void Trainer::Save(RunLog* log) {
  Heed(saver_->Wait(), log);
  double sum = 0;
  replica_.weights().ForEachState(
      [&](int, const UnitState& state) { sum += replica_.backend().SumOfSquares(state.master); });
  sum = replica_.world().SumOverRanks(sum);
  Require(std::isfinite(sum),
          "the weights are no longer finite after step {}, and were not saved; lower learning_rate", step_);
  saver_->Start({step_, reader_.positions(), optimizer_.num_updates(), guard_.samples()});
}

// Once all ranks have recorded.
void Trainer::WriteProfile() {
  replica_.world().Barrier();
  if (!hosts_.empty()) profile_->Gather(replica_.world(), hosts_);
  if (IsLead()) profile_->Write(ProfileIn(job_.run_directory()));
}

StepMetrics Trainer::Advance() {
  at_step_ = step_ + 1;
  replica_.world().set_step(at_step_);
  replica_.backend().arena().ResetPeak();
  StepMetrics metrics = Step();
  if (job_.eval_corpus && step_ % config_.eval_interval == 0) metrics.eval_loss = Evaluate();
  EndStep(metrics);
  return metrics;
}

StepMetrics Trainer::StepSeenBy(const SeeUnit& see) {
  ShardedWeights& weights = replica_.weights();
  const auto show = [&](SeenTensor which) {
    for (int unit = 0; unit < weights.table().num_units(); ++unit) {
      const Tensor flat = which == SeenTensor::kGradient ? weights.GatherGradient(unit)
                                                         : weights.Gather(unit, &UnitState::master);
      if (IsLead()) see(which, unit, flat);
    }
  };
  show(SeenTensor::kWeightsBefore);
  const StepMetrics metrics = Step();
  show(SeenTensor::kGradient);
  show(SeenTensor::kWeightsAfter);
  return metrics;
}

void Trainer::Run() {
  try {
    RunSteps();
  } catch (...) {
    RethrowWithPlace(replica_.world().rank(), at_step_);
  }
}

void Trainer::RunSteps() {
  std::unique_ptr<RunLog> log;
  if (IsLead()) log = std::make_unique<RunLog>(job_, step_ + 1);
  if (job_.saves())
    saver_ = std::make_unique<CheckpointSaver>(CheckpointsIn(job_.run_directory()), replica_.weights(),
                                               *replica_.snapshot(), replica_.world(), OptionsOfSaves(job_),
                                               job_.io_hooks);
  try {
    TakeSteps(log.get());
  } catch (...) {
    // What goes wrong in a step takes nothing from the checkpoint that is being written.
    try {
      if (saver_) saver_->Wait();
    } catch (const std::exception&) {  // the step's error is the one that is said
    }
    throw;
  }
  if (log) {
    log->EndLine();
    log->WriteReport(ReportOfRank());
  }
  if (!saver_) return;
  const std::optional<CheckpointSaver::Ended> last = saver_->Wait();
  if (!last || last->is_saved) return Heed(last, log.get());
  throw Error(
      fmt::format("the checkpoint of step {}, the last one, was not saved: {}; go on with resume=auto, "
                  "from the checkpoint before it",
                  step_, last->error),
      ExitCode::kResource);
}

void Trainer::TakeSteps(RunLog* log) {
  while (step_ < config_.steps && !stops_) {
    const StepMetrics metrics = Advance();
    if (log != nullptr) log->Add(metrics);
    const bool is_last = step_ == config_.steps || stops_;
    const int64_t num_steps = (is_last ? step_ : config_.steps) - first_step_;
    if (profile_ != nullptr && profile_->IsLast(step_ - 1 - first_step_, num_steps)) WriteProfile();
    if (!saver_) continue;
    Heed(saver_->Poll(), log);
    if (step_ % config_.checkpoint_period == 0 || is_last) {
      if (log != nullptr && !is_last) log->WriteReport(ReportOfRank());
      Save(log);
    }
  }
}

// Where the run begins. Throws Error if it cannot. Collective.
StartingPoint FindStart(const Job& job, Comm& world) {
  const StartingPoint start = FindStartingPoint(job.run_directory(), job.config.resume, world);
  if (!start.checkpoint.empty()) CheckCheckpointModel(start.checkpoint, job.model);
  return start;
}

// Shows what the run is, if `shows`, and throws Error if the memory for it isn't there.
void RequireRoom(const Job& job, const MachinePeak& peak, const std::string& checkpoint,
                 std::span<const Host> hosts, bool shows) {
  const int num_hosts = NumFullHosts(hosts);
  RequireMemory(job, {{"sequences", SequenceBytes(job)}}, num_hosts);  // before a dry run makes one
  const DryRun dry = RunDryOfLargest(job);
  if (shows) Show(StartReport(job, peak, dry, hosts));
  if (shows && !checkpoint.empty()) Show(fmt::format("{:<9} {}\n", "resume", checkpoint));
  RequireWithinLimit(job, dry, num_hosts);
  RequireMemory(job, dry.AllMemory(), num_hosts);
}

// What a run has beside its ranks: of a process.
struct RunFrame {
  std::unique_ptr<Profile> profile;
  std::unique_ptr<RunDirectory> directory;  // the first rank's to make; lasts until the run has ended on all
  StopSignals signals;
};

// A rank's whole run. `hosts` are those of ranks that are processes. Returns the step after which it ended.
int64_t RunRank(const Job& job, const std::string& config_yaml, const StartingPoint& start, double peak_flops,
                Comm& world, std::span<const Host> hosts, RunFrame& frame) {
  world.SetFailureTimeout(job.config.failure_timeout);
  Trainer trainer(job, world, peak_flops, frame.profile.get(), &frame.signals, hosts);
  const AbortOnUnwind guard(world);  // peers may be reading the trainer's memory
  trainer.Start(start.checkpoint);
  // Only now, with every input read, does the run's directory change.
  if (world.rank() == 0)
    frame.directory = std::make_unique<RunDirectory>(job.run_directory(), job.config.resume, start,
                                                     config_yaml, trainer.step(), *job.io_hooks.file_calls);
  world.Barrier();
  if (trainer.step() == job.config.steps) {
    if (world.rank() == 0)
      Show(fmt::format("complete  {} before; more are taken with a larger number of steps\n",
                       Plural(job.config.steps, "step")));
    return trainer.step();
  }
  frame.signals.Catch();  // only now is there something to save
  trainer.Run();
  return trainer.step();
}

// A rank's one step, with nothing shown or written.
StepMetrics StepOfRank(const Job& job, const std::string& checkpoint, Comm& world, const SeeUnit& see) {
  world.SetFailureTimeout(job.config.failure_timeout);
  Trainer trainer(job, world, /*peak_flops=*/0);
  const AbortOnUnwind guard(world);
  if (!checkpoint.empty()) VerifyCheckpoint(checkpoint, world);
  trainer.Start(checkpoint);
  Require(ExitCode::kUsage, trainer.step() < job.config.steps,
          "all {} of the run are taken already; give a larger number of steps",
          Plural(trainer.step(), "step"));
  return trainer.StepSeenBy(see);
}

void ShowEnd(const Job& job, const Profile* profile, int64_t step) {
  const bool is_stopped = step < job.config.steps;
  if (is_stopped)
    Show(fmt::format("stopped   by a signal after step {} of {}; {}\n", step, job.config.steps,
                     job.config.enable_checkpointing ? "the same command with resume=auto goes on"
                                                     : "nothing is saved, as enable_checkpointing=false"));
  Show(fmt::format("metrics   {}\n", MetricsIn(job.run_directory())));
  Show(fmt::format("report    {}\n", ReportIn(job.run_directory())));
  if (profile != nullptr && Exists(ProfileIn(job.run_directory())))
    Show(fmt::format("profile   {}: {}\n", ProfileIn(job.run_directory()), profile->Describe()));
  if (job.config.enable_checkpointing)
    Show(fmt::format("model     {}\n", LatestCheckpoint(CheckpointsIn(job.run_directory()))));
}

}  // namespace

bool Train(const Job& job, const std::string& config_yaml) {
  StartingPoint start;
  RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
    const StartingPoint found = FindStart(job, world);
    if (world.rank() == 0) start = found;
  });
  const MachinePeak peak = FindPeak(job);
  RequireRoom(job, peak, start.checkpoint, {}, /*shows=*/true);
  RunFrame frame;
  if (job.config.profile) frame.profile = std::make_unique<Profile>(job.config);
  int64_t step = 0;
  RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
    const int64_t last = RunRank(job, config_yaml, start, peak.flops_per_second, world, {}, frame);
    if (world.rank() == 0) step = last;
  });
  ShowEnd(job, frame.profile.get(), step);
  return step == job.config.steps;
}

bool TrainRank(const Job& job, const std::string& config_yaml, Comm& world, std::span<const Host> hosts) {
  const StartingPoint start = FindStart(job, world);
  const MachinePeak peak = FindPeak(job, world, hosts);
  const bool is_lead = world.rank() == 0;
  RequireRoom(job, peak, start.checkpoint, hosts, is_lead);
  RunFrame frame;
  if (job.config.profile) frame.profile = std::make_unique<Profile>(job.config);
  const int64_t step = RunRank(job, config_yaml, start, peak.flops_per_second, world, hosts, frame);
  if (is_lead) ShowEnd(job, frame.profile.get(), step);
  return step == job.config.steps;
}

std::vector<StepMetrics> MeasureSteps(const Job& job, double peak_flops) {
  RequireMemory(job, RunDryOfLargest(job).AllMemory());
  std::vector<StepMetrics> measured;
  RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
    Trainer trainer(job, world, peak_flops);
    const AbortOnUnwind guard(world);
    trainer.Start("");
    while (trainer.step() < job.config.steps) {
      const StepMetrics metrics = trainer.Advance();
      if (world.rank() == 0) measured.push_back(metrics);
    }
  });
  return measured;
}

StepMetrics TakeStep(const Job& job, const std::string& checkpoint, const SeeUnit& see) {
  RequireMemory(job, RunDryOfLargest(job).AllMemory());
  StepMetrics metrics;
  RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
    const StepMetrics mine = StepOfRank(job, checkpoint, world, see);
    if (world.rank() == 0) metrics = mine;
  });
  return metrics;
}

StepMetrics TakeRankStep(const Job& job, const std::string& checkpoint, Comm& world,
                         std::span<const Host> hosts, const SeeUnit& see) {
  RequireMemory(job, RunDryOfLargest(job).AllMemory(), NumFullHosts(hosts));
  return StepOfRank(job, checkpoint, world, see);
}

}  // namespace longspan
