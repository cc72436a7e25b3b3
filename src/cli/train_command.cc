#include "cli/train_command.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "cli/hardware_keys.h"
#include "cli/help.h"
#include "cli/process_job.h"
#include "cli/run_config.h"
#include "comm/mpi_comm.h"
#include "core/file.h"
#include "core/format.h"
#include "core/launched.h"
#include "core/output.h"
#include "plan/auto.h"
#include "train/job.h"
#include "train/memory_budget.h"
#include "train/run_directory.h"
#include "train/trainer.h"

namespace longspan {
namespace {

// What was chosen when the run that goes on was begun, as its config.yml says; nothing if there is none, or
// if it no longer fits.
std::optional<TrainConfig> ChosenBefore(const Job& opened, const MemoryCheck& fit) {
  TrainConfig config = opened.config, before;
  if (config.resume == "none" || config.run_name.empty()) return std::nullopt;
  const std::string path = ConfigIn(opened.run_directory());
  if (CheckpointToResume(opened.run_directory(), config.resume).empty() || !Exists(path)) return std::nullopt;
  LoadKeysFromText("train", TrainKeys(before), ReadTextFile(path), path);
  if (LeavesStrategy(config)) {
    if (before.ranks != config.ranks) return std::nullopt;
    config.context_parallel_strategy = before.context_parallel_strategy;
    config.shard_parameters = before.shard_parameters;
    config.data_parallelism = before.data_parallelism;
    config.fsdp_parallelism = before.fsdp_parallelism;
    config.context_parallelism = before.context_parallelism;
    config.ulysses_parallelism = before.ulysses_parallelism;
    if (config.global_batch_size == 0) config.global_batch_size = before.global_batch_size;
  }
  if (LeavesPolicy(config)) {
    config.remat_policy = before.remat_policy;
    for (const PlacementKey& key : kPlacementKeys) config.*key.field = before.*key.field;
    config.optimizer_memory_host_offload = before.optimizer_memory_host_offload;
    config.parameter_memory_host_offload = before.parameter_memory_host_offload;
    config.offload_directory = before.offload_directory;
  }
  if (!fit(PrepareJobWithoutText(OfSameModel(opened, config))).fits()) return std::nullopt;
  Show(fmt::format("{:<9} as before, by {}\n", "chosen", path));
  return config;
}

// With nothing left to choose; shows what was chosen and why. The ranks are spread over so many machines.
TrainConfig Chosen(const Job& opened, int num_hosts) {
  const MemoryCheck fit = [&](const Job& job) { return FitHere(job, num_hosts); };
  if (std::optional<TrainConfig> before = ChosenBefore(opened, fit)) return *before;
  std::optional<Hardware> hardware;
  if (LeavesStrategy(opened.config)) hardware = LoadHardware(opened.config.hardware);
  const AutoChoice choice = ChooseAuto(opened, fit, hardware ? &*hardware : nullptr);
  Show(AutoText(choice));
  return choice.config;
}

// The job with nothing left open.
Job Resolved(Job opened, int num_hosts) {
  if (LeavesPolicy(opened.config) || LeavesStrategy(opened.config)) opened.config = Chosen(opened, num_hosts);
  return PrepareJob(std::move(opened));
}

}  // namespace

void TrainCommand(std::span<const std::string> arguments) {
  const std::optional<int> launched = LaunchedRank();
  if (WantsHelp(arguments) || (!arguments.empty() && arguments[0] == "--help=markdown")) {
    if (launched.value_or(0) == 0) Answer(WantsHelp(arguments) ? TrainHelp() : KeyReference());
    return;
  }
  bool takes_all_steps = false;
  if (launched) {
    RunMpiRank([&](Comm& world) {
      const ProcessJob process = PrepareProcessJob(LoadTrainConfig(arguments, world.size()), world, Resolved);
      takes_all_steps = TrainRank(process.job, process.recipe, world, process.hosts);
    });
  } else {
    const Job job = Resolved(OpenText(OpenModel(LoadTrainConfig(arguments))), /*num_hosts=*/1);
    takes_all_steps = Train(job, WriteRecipe(job.config));
  }
  if (!takes_all_steps) throw Error("", ExitCode::kStopped);  // which the run has said
}

}  // namespace longspan
