#include "train/weights.h"

#include <algorithm>

#include "backend/cpu/parallel.h"

namespace longspan {

namespace {

// Of a parameter of this row, packed; 0: products don't read it, or not so.
int64_t PackedBytes(const ParamRow& row, DType compute_dtype, Backend* backend) {
  if (backend == nullptr || !row.in_products) return 0;
  return backend->PackedBytes(Tensor(nullptr, compute_dtype, row.shape));
}

// Of a unit, as long as it, in f32: master, gradient, two moments.
int64_t NumFlats(ResidentWeights::Moments moments) {
  switch (moments) {
    case ResidentWeights::Moments::kNoGradients:
      return 1;
    case ResidentWeights::Moments::kNone:
      return 2;
    case ResidentWeights::Moments::kAdam:
      break;
  }
  return 4;
}

int64_t BytesOf(const ParamTable& table, DType compute_dtype, ResidentWeights::Moments moments,
                Backend* backend) {
  int64_t bytes = 0;
  for (const ParamUnit& unit : table.units) {
    const int64_t floats = Arena::AllocationBytes(unit.num_elements * SizeOf(DType::kFloat32));
    bytes += floats * NumFlats(moments);
    if (compute_dtype != DType::kFloat32)
      bytes += Arena::AllocationBytes(unit.num_elements * SizeOf(compute_dtype));
    for (const ParamRow& row : unit.rows)
      bytes += Arena::AllocationBytes(PackedBytes(row, compute_dtype, backend));
  }
  return bytes;
}

}  // namespace

ResidentWeights::ResidentWeights(const ParamTable& table, DType compute_dtype, Moments moments,
                                 Backend* backend)
    : backend_(backend),
      arena_(backend != nullptr && backend->dry() ? Arena::Mode::kMeasure : Arena::Mode::kReal,
             BytesOf(table, compute_dtype, moments, backend)),
      table_(table) {
  for (const ParamUnit& unit : table_.units) {
    const int64_t n = unit.num_elements;
    Unit u;
    u.master = arena_.Allocate("weights", DType::kFloat32, {n});
    if (moments != Moments::kNoGradients) u.grad = arena_.Allocate("gradients", DType::kFloat32, {n});
    if (moments == Moments::kAdam) {
      u.exp_avg = arena_.Allocate("optimizer", DType::kFloat32, {n});
      u.exp_avg_sq = arena_.Allocate("optimizer", DType::kFloat32, {n});
    }
    if (compute_dtype != DType::kFloat32) u.compute = arena_.Allocate("weights.compute", compute_dtype, {n});
    for (const Tensor& values : UnitViews(unit, u.compute.IsNull() ? u.master : u.compute)) {
      Weight weight{.values = values, .packed = {}};
      const int64_t bytes = PackedBytes(unit.rows[u.weights.size()], compute_dtype, backend);
      if (bytes > 0) weight.packed = arena_.Allocate("weights.packed", DType::kByte, {bytes});
      u.weights.push_back(weight);
    }
    if (!u.grad.IsNull()) u.grad_views = UnitViews(unit, u.grad);
    units_.push_back(std::move(u));
  }
}

void ResidentWeights::Initialize(double initializer_range, uint64_t seed) {
  for (size_t i = 0; i < units_.size(); ++i) {
    const std::vector<Tensor> views = UnitViews(table_.units[i], units_[i].master);
    for (size_t p = 0; p < views.size(); ++p)
      InitializeParam(table_.units[i].rows[p], initializer_range, seed, NumThreads(), views[p]);
  }
  RefreshCompute();
}

void ResidentWeights::RefreshCompute() {
  for (int unit = 0; unit < table_.num_units(); ++unit) {
    const Unit& u = At(unit);
    if (u.compute.IsNull()) continue;
    const float* master = u.master.data<float>();
    BFloat16* compute = u.compute.data<BFloat16>();
    constexpr int64_t kBlock = int64_t{1} << 16;  // elements
    cpu::ParallelBlocks(NumThreads(), u.master.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
      std::transform(master + begin, master + end, compute + begin, [](float x) { return BFloat16(x); });
    });
    Pack(unit);
  }
}

void ResidentWeights::Pack(int unit) {
  for (const Weight& weight : At(unit).weights)
    if (!weight.packed.IsNull()) backend_->Pack(weight.values, weight.packed);
}

}  // namespace longspan
