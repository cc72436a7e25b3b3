#include "cli/train_command.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "cli/hardware_keys.h"
#include "cli/help.h"
#include "cli/run_config.h"
#include "core/file.h"
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
std::optional<TrainConfig> ChosenBefore(const Job& opened) {
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
  if (!FitHere(PrepareJobWithoutText(OfSameModel(opened, config))).fits()) return std::nullopt;
  Show(fmt::format("{:<9} as before, by {}\n", "chosen", path));
  return config;
}

// With nothing left to choose; shows what was chosen and why.
TrainConfig Chosen(const Job& opened) {
  if (std::optional<TrainConfig> before = ChosenBefore(opened)) return *before;
  std::optional<Hardware> hardware;
  if (LeavesStrategy(opened.config)) hardware = LoadHardware(opened.config.hardware);
  const AutoChoice choice = ChooseAuto(opened, FitHere, hardware ? &*hardware : nullptr);
  Show(AutoText(choice));
  return choice.config;
}

}  // namespace

void TrainCommand(std::span<const std::string> arguments) {
  if (WantsHelp(arguments)) return Answer(TrainHelp());
  if (!arguments.empty() && arguments[0] == "--help=markdown") return Answer(KeyReference());
  Job opened = OpenText(OpenModel(LoadTrainConfig(arguments)));
  if (LeavesPolicy(opened.config) || LeavesStrategy(opened.config)) opened.config = Chosen(opened);
  const Job job = PrepareJob(std::move(opened));
  Train(job, WriteRecipe(job.config));
}

}  // namespace longspan
