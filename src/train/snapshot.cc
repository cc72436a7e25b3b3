#include "train/snapshot.h"

namespace longspan {

Snapshot::Snapshot(ShardedWeights& weights, Backend& backend) : weights_(weights), backend_(backend) {
  // Twice, since an arena wants to know its size.
  Arena measured(Arena::Mode::kMeasure);
  Allocate(measured);
  arena_ = std::make_unique<Arena>(backend.dry() ? Arena::Mode::kMeasure : Arena::Mode::kReal,
                                   measured.used_bytes());
  Allocate(*arena_);
}

void Snapshot::Allocate(Arena& arena) {
  units_.assign(static_cast<size_t>(weights_.table().num_units()), {});
  for (int unit = 0; unit < weights_.table().num_units(); ++unit) {
    UnitState& copy = units_[static_cast<size_t>(unit)];
    const int64_t size = weights_.Share(unit).size();
    copy.master = arena.Allocate(kMemoryName, DType::kFloat32, {size});
    if (!weights_.has_moments()) continue;
    copy.exp_avg = arena.Allocate(kMemoryName, DType::kFloat32, {size});
    copy.exp_avg_sq = arena.Allocate(kMemoryName, DType::kFloat32, {size});
  }
}

void Snapshot::Take() {
  weights_.ForEachState([&](int unit, const UnitState& state) {
    const Range share = weights_.Share(unit), kept = weights_.Kept(unit);
    for (Tensor UnitState::*tensor : {&UnitState::master, &UnitState::exp_avg, &UnitState::exp_avg_sq}) {
      const Tensor copy = Of(unit, tensor);
      if (!copy.IsNull() && !share.empty())
        backend_.Copy((state.*tensor).Rows(share.begin - kept.begin, share.end - kept.begin), copy);
    }
  });
}

}  // namespace longspan
