#include "train/weights.h"

#include <algorithm>

namespace longspan {

namespace {

int64_t BytesOf(const ParamTable& table, DType compute_dtype, ResidentWeights::Moments moments) {
  int64_t bytes = 0;
  for (const ParamUnit& unit : table.units) {
    const int64_t floats = Arena::AllocationBytes(unit.num_elements * SizeOf(DType::kFloat32));
    bytes += floats * (moments == ResidentWeights::Moments::kAdam ? 4 : 2);
    if (compute_dtype != DType::kFloat32)
      bytes += Arena::AllocationBytes(unit.num_elements * SizeOf(compute_dtype));
  }
  return bytes;
}

}  // namespace

ResidentWeights::ResidentWeights(const ParamTable& table, DType compute_dtype, Moments moments,
                                 Arena::Mode mode)
    : arena_(mode, BytesOf(table, compute_dtype, moments)), table_(table) {
  for (const ParamUnit& unit : table_.units) {
    const int64_t n = unit.num_elements;
    Unit u;
    u.master = arena_.Allocate("weights", DType::kFloat32, {n});
    u.grad = arena_.Allocate("gradients", DType::kFloat32, {n});
    if (moments == Moments::kAdam) {
      u.exp_avg = arena_.Allocate("optimizer", DType::kFloat32, {n});
      u.exp_avg_sq = arena_.Allocate("optimizer", DType::kFloat32, {n});
    }
    if (compute_dtype != DType::kFloat32) u.compute = arena_.Allocate("weights.compute", compute_dtype, {n});
    u.compute_views = UnitViews(unit, u.compute.IsNull() ? u.master : u.compute);
    u.grad_views = UnitViews(unit, u.grad);
    units_.push_back(std::move(u));
  }
}

void ResidentWeights::Initialize(double initializer_range, uint64_t seed) {
  for (size_t i = 0; i < units_.size(); ++i) {
    const std::vector<Tensor> views = UnitViews(table_.units[i], units_[i].master);
    for (size_t p = 0; p < views.size(); ++p)
      InitializeParam(table_.units[i].rows[p], initializer_range, seed, views[p]);
  }
  RefreshCompute();
}

void ResidentWeights::RefreshCompute() {
  for (const Unit& u : units_) {
    if (u.compute.IsNull()) continue;
    const float* master = u.master.data<float>();
    std::transform(master, master + u.master.num_elements(), u.compute.data<BFloat16>(),
                   [](float x) { return BFloat16(x); });
  }
}

}  // namespace longspan
