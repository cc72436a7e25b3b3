// Replica: one rank's model and all that it stands on. The trainer runs one on the CPU; a dry run, with the
// same constructor over a dry backend and communicator, learns what it will take.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/mesh.h"
#include "model/activations.h"
#include "model/model.h"
#include "model/sequence.h"
#include "parallel/strategy.h"
#include "train/finite_watch.h"
#include "train/job.h"
#include "train/offloaded_activations.h"
#include "train/snapshot.h"
#include "train/tier.h"
#include "train/weights.h"

namespace longspan {

class Replica {
 public:
  // Collective over `world`, which has mesh.ranks() ranks. `job` and `world` outlive it.
  Replica(const Job& job, std::unique_ptr<Backend> backend, Comm& world);

  Backend& backend() { return *backend_; }
  Comm& world() { return *mesh_.world; }
  const Mesh& mesh() const { return mesh_; }
  const Layout& layout() const { return layout_; }
  int context_rank() const { return mesh_.at.ring * mesh_.shape.ulysses + mesh_.at.ulysses; }
  ShardedWeights& weights() { return weights_; }
  FiniteWatch& watch() { return watch_; }
  // Where checkpoints are saved; else null.
  Snapshot* snapshot() { return snapshot_.get(); }

  // How many passes a sequence takes.
  int64_t NumPasses(const Batch& sequence) const;
  // Of this rank's rows of one sequence, which its context ranks work on together, in passes if it is longer
  // than one: Σ of token losses, natural log. Where it takes fewer than num_passes the rest are of padding:
  // ranks that share weights make as many.
  double Loss(const Batch& batch, int64_t num_passes = 1);
  // Of each of this rank's rows of a sequence of one pass: loss (t) f32 and greedy choice (t) int32, as
  // Model::TokenLosses.
  void TokenLosses(const Batch& batch, Tensor losses, Tensor argmax) {
    model_.TokenLosses(loader_.Load(batch), losses, argmax);
  }
  // Also the gradients of loss_scale · that sum, which the weights sum over all ranks, pass by pass: all
  // ranks of the run make as many.
  double LossAndGradients(const Batch& batch, double loss_scale, int64_t num_passes = 1);

  // Bytes by name, at their highest so far: on the device; in the host's memory, and in a file on a disk, of
  // what is offloaded and of a checkpoint's snapshot.
  std::map<std::string, int64_t> MemoryByName() const;
  std::map<std::string, int64_t> HostMemoryByName() const;
  std::map<std::string, int64_t> DiskByName() const;
  int64_t memory_bytes() const;  // on the device
  // Holds what it takes on the device to so many bytes: a step that took more would throw Error(kResource).
  void LimitMemory(int64_t bytes);
  // Written to the tier and read from it so far; of the time that the backend waited, that for the tier.
  int64_t offload_bytes_written() const { return tier_.bytes_written(); }
  int64_t offload_bytes_read() const { return tier_.bytes_read(); }
  double offload_wait_seconds() const { return tier_.wait_seconds(); }

 private:
  // Σ of f over the passes of a sequence, at least so many.
  template <class F>
  double OverPasses(const Batch& batch, int64_t num_passes, F f);

  std::unique_ptr<Backend> backend_;
  Mesh mesh_;
  Layout layout_;
  std::vector<std::unique_ptr<AttentionStrategy>> strategies_;  // by layer kind
  std::unique_ptr<Background> background_;                      // null: nothing is offloaded, or it is dry
  Tier tier_;
  ShardedWeights weights_;
  std::unique_ptr<Snapshot> snapshot_;
  OffloadedActivations activations_;
  FiniteWatch watch_;
  WatchedWeights watched_weights_;
  WatchedActivations watched_activations_;
  Model model_;
  SequenceLoader loader_;
};

// Memory by name of one rank of a run, and what it sends and offloads in a step (TrainStep; in the forward
// pass alone of a job that is no more), found by running it dry: nothing is computed and no memory taken.
// Unless a recorder asks for a whole step it is one of a single micro-step and pass, which takes the same
// memory. Neither depends on the documents, but for how many passes they take. (A step that follows an
// evaluation may find weights gathered, and sends less.) With what the trainer itself holds of a step: its
// sequences.
struct DryRun {
  std::map<std::string, int64_t> memory;
  // What is offloaded, by name, and where, and what a checkpoint takes of the host's memory.
  std::map<std::string, int64_t> host_memory, disk;
  Comm::Traffic traffic;
  int64_t offload_bytes_written = 0;  // to the tier
  int64_t update_bytes_written = 0;   // of them, in the update

  // All of memory and host_memory, whose names get the prefix "host.".
  std::map<std::string, int64_t> AllMemory() const;
};
struct DryRunOptions {
  bool accelerator = false;          // another device than the CPU: MakeDryAccelerator
  WorkRecorder* recorder = nullptr;  // gets the work of a whole step: all micro-steps, passes and the update
};
DryRun RunDry(const Job& job, int rank, const DryRunOptions& options = {});
// Of the rank that takes most memory. They differ in their shards of the weights, of which the first is the
// largest, and in the heads that they are dealt where these don't divide evenly.
DryRun RunDryOfLargest(const Job& job, bool accelerator = false);

// Ids and targets of the sequences that a rank holds during a step.
int64_t SequenceBytes(const Job& job);

}  // namespace longspan
