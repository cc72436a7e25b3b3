#include "cli/verify_command.h"

#include <optional>
#include <utility>
#include <vector>

#include "cli/hardware_keys.h"
#include "cli/help.h"
#include "cli/run_config.h"
#include "core/check.h"
#include "core/output.h"
#include "eval/verify.h"
#include "plan/auto.h"
#include "train/checkpoint.h"
#include "train/job.h"
#include "train/memory_budget.h"
#include "train/run_directory.h"

namespace longspan {
namespace {

// The run as it would be trained, but for what it would write and measure.
Job MeshJob(const TrainConfig& config) {
  Job opened = OpenText(OpenModel(config));
  std::optional<Hardware> hardware;
  if (LeavesStrategy(opened.config)) hardware = LoadHardware(opened.config.hardware);
  const auto fits = [](const Job& job) { return FitHere(job); };
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
  VerifyConfig config;
  const KeyList keys = VerifyKeys(config);
  if (WantsHelp(arguments))
    return Answer(CommandHelp("verify",
                              "Takes one step of a run under one rank and one under its mesh, and compares "
                              "loss, gradients and updated weights. Takes training's keys and recipes; "
                              "nothing is written.",
                              keys));
  LoadKeys("verify", keys, arguments);
  config.run.eval_interval = -1;
  config.run.profile = false;
  const Job mesh = MeshJob(config.run);
  const Job one_rank = PrepareJob(OnOneRank(mesh.config));
  const Verification verification = VerifyStep(one_rank, mesh, CheckpointOf(mesh));
  Answer(config.format == "json" ? VerifyJson(mesh, verification) : VerifyTable(mesh, verification));
  Require(
      ExitCode::kInternal, verification.passed(),
      "the mesh differs from one rank by more than rounding; this is a fault of longspan or of a machine, "
      "please report it with the table");
}

}  // namespace longspan
