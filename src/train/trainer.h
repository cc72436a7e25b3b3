// Trainer: the whole run, and the step on one screen.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/hosts.h"
#include "data/packing.h"
#include "model/flops.h"
#include "train/job.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/step_guard.h"

namespace longspan {

class Replica;

// A step's sequences. Every rank looks at all of them, so the divisor of the loss is known beforehand and all
// deal alike, and keeps its own.
struct StepBatches {
  std::vector<Batch> mine;                  // of my group, one a micro-step
  std::vector<int64_t> passes;              // of each micro-step: as many as any of its sequences takes
  int64_t num_tokens = 0, num_targets = 0;  // of all
  StepFlops flops;                          // of all
};

struct StepResult {
  double loss = 0;       // mean over the step's targets, before the update
  double grad_norm = 0;  // before clipping
  std::string skipped;   // why there was no update; empty: there was one
};

// A step, of number `step`: the gradients of its sequences, their norm and the update, unless the guard, if
// there is one, skips it. Collective. Throws Error, with the weights as they were, if one of the two results
// is not finite and the guard doesn't skip such steps. A dry run is of this (train/replica.h).
StepResult TrainStep(Replica& replica, Optimizer& optimizer, const StepBatches& batches, double learning_rate,
                     int64_t step, StepGuard* guard = nullptr);

// Runs the job on job.mesh.ranks() thread ranks of this process: start report, steps, evaluation,
// checkpoints. `config_yaml` is job.config as a recipe, for config.yml. SIGTERM or SIGINT ends it after the
// step that it is in, once that is saved; returns false then, true if it has taken all steps. Throws Error;
// what was saved before stays.
bool Train(const Job& job, const std::string& config_yaml);
// The same on ranks that are processes, by the one of `world`, which runs on one of `hosts`. All have the
// same job. The first rank alone shows and writes. All end after the same step, whichever of them a signal
// has reached. Collective.
bool TrainRank(const Job& job, const std::string& config_yaml, Comm& world, std::span<const Host> hosts);

// The job's steps from its initial weights, with nothing read, shown or written: what each measured. MFU is
// against `peak_flops`, FLOP/s; 0: none. Throws Error, also where the machine's memory is not enough.
std::vector<StepMetrics> MeasureSteps(const Job& job, double peak_flops);

// The step that the job takes from a checkpoint, or without one from its initial weights, with nothing shown
// or written; for comparing runs. Of each unit in turn, whole and flat, f32, `see` gets on the first rank:
// the weights before the step, its gradient (before clipping) and the weights after the update. Throws Error,
// also where the machine's memory is not enough.
enum class SeenTensor { kWeightsBefore, kGradient, kWeightsAfter };
using SeeUnit = std::function<void(SeenTensor which, int unit, Tensor flat)>;
StepMetrics TakeStep(const Job& job, const std::string& checkpoint, const SeeUnit& see);
// The same on ranks that are processes, by the one of `world`, which runs on one of `hosts`. Collective.
StepMetrics TakeRankStep(const Job& job, const std::string& checkpoint, Comm& world,
                         std::span<const Host> hosts, const SeeUnit& see);

}  // namespace longspan
