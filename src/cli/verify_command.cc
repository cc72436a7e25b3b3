#include "cli/verify_command.h"

#include <optional>
#include <utility>
#include <vector>

#include "cli/hardware_keys.h"
#include "cli/help.h"
#include "cli/process_job.h"
#include "cli/run_config.h"
#include "comm/agreement.h"
#include "comm/mpi_comm.h"
#include "core/check.h"
#include "core/launched.h"
#include "core/output.h"
#include "eval/verify.h"
#include "plan/auto.h"
#include "train/checkpoint.h"
#include "train/checkpoint_folder.h"
#include "train/job.h"
#include "train/memory_budget.h"
#include "train/run_directory.h"

namespace longspan {
namespace {

// The job with nothing left open.
Job Resolved(Job opened, int num_hosts) {
  std::optional<Hardware> hardware;
  if (LeavesStrategy(opened.config)) hardware = LoadHardware(opened.config.hardware);
  const auto fits = [num_hosts](const Job& job) { return FitHere(job, num_hosts); };
  opened.config = ChooseAuto(opened, fits, hardware ? &*hardware : nullptr).config;
  return PrepareJob(std::move(opened));
}

// Unlike a run, which would go on in its directory, this only reads: resume=none is a fresh start in any.
std::string CheckpointOf(const Job& job) {
  if (job.config.resume == "none") return "";
  const std::string checkpoint =
      job.config.resume == "auto" ? LatestCheckpoint(CheckpointsIn(job.run_directory())) : job.config.resume;
  if (!checkpoint.empty()) CheckCheckpointModel(checkpoint, job.model);
  return checkpoint;
}

// The run as it would be trained, but for what it would write and measure.
VerifyConfig LoadVerifyConfig(std::span<const std::string> arguments, int64_t ranks = 1) {
  VerifyConfig config;
  config.run.ranks = ranks;
  LoadKeys("verify", VerifyKeys(config), arguments);
  config.run.eval_interval = -1;
  config.run.profile = false;
  config.run.enable_checkpointing = false;
  return config;
}

void Tell(const VerifyConfig& config, const Job& mesh, const Verification& verification) {
  Answer(config.format == "json" ? VerifyJson(mesh, verification) : VerifyTable(mesh, verification));
}

void RequirePassed(bool passed) {
  Require(
      ExitCode::kInternal, passed,
      "the mesh differs from one rank by more than rounding; this is a fault of longspan or of a machine, "
      "please report it with the table");
}

// One rank of those that a launcher has started as processes. The first one takes the step of one rank, while
// the others wait.
void VerifyProcess(const VerifyConfig& config, Comm& world) {
  const ProcessJob mesh = PrepareProcessJob(config.run, world, Resolved);
  const std::string checkpoint = CheckpointOf(mesh.job);
  RequireAgreement(world, "the checkpoint", checkpoint.empty() ? "none" : checkpoint);
  std::optional<Job> one_rank;
  if (world.rank() == 0) one_rank = PrepareJob(OnOneRank(mesh.job.config));
  const std::optional<Verification> verification =
      VerifyRankStep(one_rank ? &*one_rank : nullptr, mesh.job, checkpoint, world, mesh.hosts);
  if (verification) Tell(config, mesh.job, *verification);
  RequirePassed(world.SumOverRanks(verification && !verification->passed() ? 1 : 0) == 0);
}

}  // namespace

KeyList VerifyKeys(VerifyConfig& config) {
  KeyList keys;
  const KeyList train = TrainKeys(config.run);
  std::vector<std::string_view> names;
  for (const Key& key : train.keys()) names.push_back(key.name);
  keys.AddFrom(train, names);
  keys.Group("Report");
  keys.Add("format", &config.format, "A table, or JSON (docs/reference/verify.md).", {}, {"table", "json"})
      .is_option = true;
  return keys;
}

void VerifyCommand(std::span<const std::string> arguments) {
  const std::optional<int> launched = LaunchedRank();
  if (WantsHelp(arguments)) {
    VerifyConfig config;
    if (launched.value_or(0) > 0) return;
    return Answer(CommandHelp("verify",
                              "Takes one step of a run under one rank and one under its mesh, and compares "
                              "loss, gradients and updated weights. Takes training's keys and recipes; "
                              "nothing is written.",
                              VerifyKeys(config)));
  }
  if (launched) {
    return RunMpiRank([&](Comm& world) { VerifyProcess(LoadVerifyConfig(arguments, world.size()), world); });
  }
  const VerifyConfig config = LoadVerifyConfig(arguments);
  const Job mesh = Resolved(OpenText(OpenModel(config.run)), /*num_hosts=*/1);
  const Job one_rank = PrepareJob(OnOneRank(mesh.config));
  const Verification verification = VerifyStep(one_rank, mesh, CheckpointOf(mesh));
  Tell(config, mesh, verification);
  RequirePassed(verification.passed());
}

}  // namespace longspan
