// Weights, gradients and the optimizer's state: on each rank as a whole, or in shards over several.
//
// A unit's flat tensors are cut into shards of whole blocks, one for each rank of a group, of which the last
// ones may be short or empty. A rank keeps, loads, updates and saves its shard of the masters, the compute
// weights, the gradient and the moments. A unit's compute weights are gathered just before use, the next
// unit's while this one is at work; its gradient lies whole on each rank until it is complete. Units that are
// never at work together share the memory of both. In a group of one rank the shard is the unit, every unit
// has its own memory, and nothing is gathered.
//
// Gradients are summed over all ranks of the run while the backward pass goes on: each element by one rank,
// in rank order, in f32. So neither sharding nor the split of ranks into data_parallelism and
// fsdp_parallelism changes a bit. Where several ranks have the same shard each sums a part of it, and they
// exchange the parts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "comm/mesh.h"
#include "model/params.h"
#include "model/weight_store.h"

namespace longspan {

// The ranks of a run, by what they have; by default this one alone.
struct WeightRanks {
  Comm* all = nullptr;       // whose gradients are summed
  Comm* shards = nullptr;    // which have the weights among them: consecutive ones of all
  Comm* replicas = nullptr;  // which have the same shard, in the order of all

  // Those of a mesh, with a shard on each rank or the whole.
  static WeightRanks Of(Mesh& mesh, bool shard_parameters);
};

class ShardedWeights final : public WeightStore {
 public:
  // What is there besides weights: nothing (they are only run), gradients (SGD), gradients and AdamW's
  // moments.
  enum class Moments { kNoGradients, kNone, kAdam };

  // Everything starts as zero. Compute weights are the masters themselves (float32) or a bf16 copy; matrices
  // are also there in the form that the products of `backend`, which outlives this, read, if it has one. A
  // dry one's weights have addresses and sizes but no memory. Null: there will be no products, the weights
  // are only loaded or saved. `accumulates`: a step may have several passes with gradients.
  ShardedWeights(const ParamTable& table, DType compute_dtype, Moments moments, Backend* backend = nullptr,
                 const WeightRanks& ranks = {}, bool accumulates = false);
  // Waits for peers that still read what is here. (After an error AbortOnUnwind has ended that.)
  ~ShardedWeights() override;

  void Prefetch(int unit) override;
  std::span<const Weight> Get(int unit) override;
  void Release(int unit) override;
  std::span<const Tensor> Grad(int unit) override;
  void GradReady(int unit) override;

  const ParamTable& table() const { return table_; }
  bool is_sharded() const { return num_shards_ > 1; }
  bool is_first_rank() const { return replica_ == 0 && shard_ == 0; }

  // The elements of a unit that this rank keeps, and of some of a unit's those among them.
  Range Kept(int unit) const { return At(unit).kept; }
  Range Kept(int unit, Range elements) const;
  // This rank's shards, flat (Kept(unit).size()) f32. The moments are null for SGD.
  Tensor Master(int unit) const { return At(unit).master; }
  Tensor FlatGrad(int unit) const { return At(unit).gradient; }
  Tensor ExpAvg(int unit) const { return At(unit).exp_avg; }
  Tensor ExpAvgSq(int unit) const { return At(unit).exp_avg_sq; }
  // bf16, or null where the master is what the model reads.
  Tensor Compute(int unit) const { return At(unit).compute; }

  void Initialize(double initializer_range, uint64_t seed);
  // Rounds the masters into the compute weights; after loading or initialising them.
  void RefreshCompute();
  // A unit's compute weights were updated: what was made from them is out of date.
  void Changed(int unit);

  // The passes that follow are those of a new step.
  void ZeroGradients();
  // Waits until the sums over ranks and passes are in FlatGrad.
  void FinishGradients();
  // Finishes them. Σ of the squares of the whole model's gradient, f64, every element once: sums of
  // Backend::kNormBlock elements of a unit, added in the table's order. Collective; dry: 0.
  double GradientSumOfSquares();

  // The whole of a unit's flat tensor of which every rank has a part, this one `shard`, on the first rank:
  // f32 (num_elements of the unit), good until the next call or pass; null on the others. Collective. No
  // gradient may be at work.
  Tensor Gather(int unit, Tensor shard) const;

  // Bytes by name: "weights", "weights.compute", "weights.packed", "gradients", "optimizer"; sharded also
  // "weights.gathered", of units at work, and then or with several passes "gradients.local", of a pass.
  const Arena& memory() const { return *arena_; }

 private:
  struct Unit {
    int64_t num_elements = 0;
    Range kept;
    Tensor master, gradient, exp_avg, exp_avg_sq, compute;  // (kept.size())
    bool has_sum = false;                                   // `gradient` is the sum of passes of this step

    Tensor whole;                     // compute weights (num_elements)
    std::vector<Weight> weights;      // its rows
    Tensor local;                     // the gradient of a pass (num_elements) f32, before and after its sum
    std::vector<Tensor> local_views;  // its rows
  };
  // The memory of units that are never at work together.
  struct Slot {
    int unit = -1;  // whose weights are there, or on their way
    bool in_use = false, packed = false;
    Event gathered;

    int gradient_unit = -1;  // whose gradient is there
    bool complete = false;
    Event summed;
  };

  void Allocate(Arena& arena, DType compute_dtype, Moments moments);
  // Whether the gradient of a pass stays where it was made.
  bool IsInPlace() const { return !is_sharded() && !accumulates_; }
  int SlotOf(int unit) const;
  Slot& SlotAt(int unit) { return slots_[static_cast<size_t>(SlotOf(unit))]; }
  // Which of so many elements of a unit rank `shard` keeps; and which of these rank `replica` sums.
  Range KeptBy(int shard, int64_t num_elements) const;
  Range SummedBy(int replica, Range kept) const;
  Event StartSum(const Unit& unit);
  void Land(Slot& slot);
  void Wait(const Event& event) const;

  const Unit& At(int unit) const { return units_[static_cast<size_t>(unit)]; }
  Unit& At(int unit) { return units_[static_cast<size_t>(unit)]; }
  int NumThreads() const { return backend_ == nullptr ? 1 : backend_->num_threads(); }

  const ParamTable table_;
  Backend* const backend_;
  const WeightRanks ranks_;
  const bool accumulates_;
  int num_shards_ = 1, shard_ = 0, num_replicas_ = 1, replica_ = 0;
  std::unique_ptr<Arena> arena_;
  std::vector<Unit> units_;
  std::vector<Slot> slots_;
};

}  // namespace longspan
