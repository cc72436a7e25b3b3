#include "train/weights.h"

#include <algorithm>

namespace longspan {

ResidentWeights::ResidentWeights(const ParamTable& table, DType compute_dtype, Moments moments) : table_(table) {
  for (const ParamUnit& unit : table_.units) {
    Unit u;
    const int64_t n = unit.num_elements;
    u.master = Buffer(DType::kFloat32, {n});
    u.grad = Buffer(DType::kFloat32, {n});
    if (moments == Moments::kAdam) {
      u.exp_avg = Buffer(DType::kFloat32, {n});
      u.exp_avg_sq = Buffer(DType::kFloat32, {n});
    }
    if (compute_dtype != DType::kFloat32) u.compute = Buffer(compute_dtype, {n});
    u.compute_views = UnitViews(unit, u.compute.tensor().IsNull() ? u.master.tensor() : u.compute.tensor());
    u.grad_views = UnitViews(unit, u.grad.tensor());
    units_.push_back(std::move(u));
  }
}

void ResidentWeights::Initialize(double initializer_range, uint64_t seed) {
  for (size_t i = 0; i < units_.size(); ++i) {
    const std::vector<Tensor> views = UnitViews(table_.units[i], units_[i].master.tensor());
    for (size_t p = 0; p < views.size(); ++p)
      InitializeParam(table_.units[i].rows[p], initializer_range, seed, views[p]);
  }
  RefreshCompute();
}

void ResidentWeights::RefreshCompute() {
  for (Unit& u : units_) {
    if (u.compute.tensor().IsNull()) continue;
    std::span<const float> master(u.master.tensor().data<float>(), static_cast<size_t>(u.master.tensor().num_elements()));
    std::transform(master.begin(), master.end(), u.compute.tensor().data<BFloat16>(), [](float x) { return BFloat16(x); });
  }
}

int64_t ResidentWeights::weights_bytes() const {
  int64_t sum = 0;
  for (const Unit& u : units_) sum += u.master.num_bytes() + u.compute.num_bytes();
  return sum;
}

int64_t ResidentWeights::grads_bytes() const {
  int64_t sum = 0;
  for (const Unit& u : units_) sum += u.grad.num_bytes();
  return sum;
}

int64_t ResidentWeights::moments_bytes() const {
  int64_t sum = 0;
  for (const Unit& u : units_) sum += u.exp_avg.num_bytes() + u.exp_avg_sq.num_bytes();
  return sum;
}

}  // namespace longspan
