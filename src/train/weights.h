// Weights, gradients and the optimizer's state: on each rank as a whole, or in shards over several.
//
// A unit's flat tensors are cut into shards of whole blocks, one for each rank of a group, of which the last
// ones may be short or empty. A rank keeps, loads, updates and saves its shard of the masters, the compute
// weights, the gradient and the moments. A unit's compute weights are gathered just before use, the next
// unit's while this one is at work; its gradient lies whole on each rank until it is complete. Units that are
// never at work together share the memory of both. In a group of one rank the shard is the unit, every unit
// has its own memory, and nothing is gathered.
//
// A shard lives on the device or in a tier (StateStore). If the compute weights do the latter, they are
// fetched before they are gathered: straight into their piece of what is gathered, which in a group of one
// rank is all of it.
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
#include "train/state_store.h"

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
                 const WeightRanks& ranks = {}, bool accumulates = false, const StateOffload& offload = {});
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
  // Of a unit's elements those that this rank saves: those that ranks keep alike are dealt among these. Of
  // another rank of the run the same; each element is in one rank's share.
  Range Share(int unit) const { return SummedBy(replica_, At(unit).kept); }
  Range ShareOf(int rank, int unit) const {
    return SummedBy(rank / num_shards_, KeptBy(rank % num_shards_, At(unit).num_elements));
  }
  // The ranks of the run in the order in which their shares of a unit lie.
  std::vector<int> RanksInOrder() const;
  // This rank's shards, flat (Kept(unit).size()): of the gradient, f32, and of what else it keeps, which is
  // good until the unit after the next is asked for.
  Tensor FlatGrad(int unit) const { return At(unit).gradient; }
  const UnitState& State(int unit) { return state_.Get(unit); }
  void PrefetchState(int unit) { state_.Prefetch(unit); }
  // Calls f(unit, its state) for all of them, while the next one's is on its way.
  template <class F>
  void ForEachState(F f) {
    for (int unit = 0; unit < table_.num_units(); ++unit) {
      PrefetchState(unit);
      if (unit + 1 < table_.num_units()) PrefetchState(unit + 1);
      f(unit, State(unit));
    }
  }
  bool has_moments() const { return state_.has_moments(); }
  int64_t state_bytes_written() const { return state_.bytes_written(); }  // to the tier so far

  void Initialize(double initializer_range, uint64_t seed);
  // Rounds the masters of a unit into its compute weights, after initialising or loading them.
  void RefreshCompute(int unit);
  // The State of a unit was written to, the moments too or not: what was made from it is out of date.
  void Changed(int unit, bool with_moments = true);

  // The passes that follow are those of a new step.
  void ZeroGradients();
  // Waits until the sums over ranks and passes are in FlatGrad.
  void FinishGradients();
  // Finishes them. Σ of the squares of the whole model's gradient, f64, every element once: sums of
  // Backend::kNormBlock elements of a unit, added in the table's order. Collective; dry: 0.
  double GradientSumOfSquares();

  // The whole of one of a unit's tensors of which every rank has a shard, on the first rank: f32
  // (num_elements of the unit), good until the next call or pass; null on the others. Collective. No gradient
  // may be at work.
  Tensor Gather(int unit, Tensor UnitState::*tensor);
  // The same of the gradient's sum, after FinishGradients.
  Tensor GatherGradient(int unit);

  // Bytes by name: "weights", "weights.compute", "weights.packed", "gradients", "optimizer", of what is
  // offloaded "weights in flight" and "optimizer in flight" alone; sharded also "weights.gathered", of units
  // at work, and then or with several passes "gradients.local", of a pass.
  const Arena& memory() const { return *arena_; }

 private:
  struct Unit {
    int64_t num_elements = 0;
    Range kept;
    Tensor gradient;       // (kept.size())
    bool has_sum = false;  // it is the sum of passes of this step

    Tensor whole;                     // compute weights (num_elements)
    std::vector<Weight> weights;      // its rows
    Tensor local;                     // the gradient of a pass (num_elements) f32, before and after its sum
    std::vector<Tensor> local_views;  // its rows
  };
  // The memory of units that are never at work together: of compute weights, and of gradients of a pass.
  struct WeightSlot {
    int unit = -1;  // whose weights are there, or on their way
    bool in_use = false, packed = false;
    Event fetched, gathered;  // from the tier, and then from all ranks
  };
  struct GradientSlot {
    int unit = -1;  // whose gradient is there
    bool complete = false;
    Event summed;
  };

  void Allocate(Arena& arena, DType compute_dtype, Moments moments);
  void AllocateWeights(Arena& arena, DType compute_dtype);
  void AllocateGradients(Arena& arena);
  std::vector<int64_t> KeptSizes() const;
  // Whether a unit's compute weights are only there while the model is at work at it.
  bool IsTransient() const { return is_sharded() || state_.offloads_parameters(); }
  // Whether the gradient of a pass stays where it was made.
  bool IsInPlace() const { return !is_sharded() && !accumulates_; }
  int SharedSlotOf(int unit) const;
  size_t WeightSlotOf(int unit) const {
    return static_cast<size_t>(IsTransient() ? SharedSlotOf(unit) : unit);
  }
  size_t GradientSlotOf(int unit) const {
    return static_cast<size_t>(is_sharded() ? SharedSlotOf(unit) : unit);
  }
  // Which of so many elements of a unit rank `shard` keeps; and which of these rank `replica` sums.
  Range KeptBy(int shard, int64_t num_elements) const;
  Range SummedBy(int replica, Range kept) const;
  Event StartSum(const Unit& unit);
  void Land(GradientSlot& slot);
  Tensor GatherShards(int unit, Tensor shard);
  void WaitFor(WeightSlot& slot);
  void Wait(const Event& event) const;

  const Unit& At(int unit) const { return units_[static_cast<size_t>(unit)]; }
  Unit& At(int unit) { return units_[static_cast<size_t>(unit)]; }
  int NumThreads() const { return backend_ == nullptr ? 1 : backend_->num_threads(); }

  const ParamTable table_;
  Backend* const backend_;
  const WeightRanks ranks_;
  const bool accumulates_;
  const int num_shards_, shard_, num_replicas_, replica_;
  std::unique_ptr<Arena> arena_;
  StateStore state_;
  std::vector<Unit> units_;
  std::vector<WeightSlot> weight_slots_;
  std::vector<GradientSlot> gradient_slots_;
};

}  // namespace longspan
