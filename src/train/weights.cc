#include "train/weights.h"

#include <algorithm>

#include "backend/cpu/parallel.h"

namespace longspan {
namespace {

// A shard is whole blocks of a unit, so that the sums of squares of blocks are the same however it is
// sharded.
constexpr int64_t kBlock = Backend::kNormBlock;
// Where units share memory (SharedSlotOf).
constexpr size_t kSharedSlots = 3;

// Of a parameter of this row, packed; 0: products don't read it, or not so.
int64_t PackedBytes(const ParamRow& row, DType compute_dtype, Backend* backend) {
  if (backend == nullptr || !row.in_products) return 0;
  return Arena::AllocationBytes(backend->PackedBytes(Tensor(nullptr, compute_dtype, row.shape)));
}

int64_t PackedBytes(const ParamUnit& unit, DType compute_dtype, Backend* backend) {
  int64_t bytes = 0;
  for (const ParamRow& row : unit.rows) bytes += PackedBytes(row, compute_dtype, backend);
  return bytes;
}

int GroupSize(const Comm* group) { return group == nullptr ? 1 : group->size(); }
int RankIn(const Comm* group) { return group == nullptr ? 0 : group->rank(); }

}  // namespace

WeightRanks WeightRanks::Of(Mesh& mesh, bool shard_parameters) {
  if (shard_parameters) return {mesh.world, mesh.shards.get(), mesh.replicas.get()};
  return {mesh.world, mesh.self.get(), mesh.world};
}

ShardedWeights::ShardedWeights(const ParamTable& table, DType compute_dtype, Moments moments,
                               Backend* backend, const WeightRanks& ranks, bool accumulates,
                               const StateOffload& offload)
    : table_(table),
      backend_(backend),
      ranks_(ranks),
      accumulates_(accumulates),
      num_shards_(GroupSize(ranks.shards)),
      shard_(RankIn(ranks.shards)),
      num_replicas_(GroupSize(ranks.replicas)),
      replica_(RankIn(ranks.replicas)),
      state_(KeptSizes(), compute_dtype, moments == Moments::kAdam, offload, backend) {
  CHECK(GroupSize(ranks_.all) == num_replicas_ * num_shards_);
  CHECK(RankIn(ranks_.all) == replica_ * num_shards_ + shard_);
  // Twice, since an arena wants to know its size.
  Arena measured(Arena::Mode::kMeasure);
  Allocate(measured, compute_dtype, moments);
  const bool dry = backend != nullptr && backend->dry();
  arena_ = std::make_unique<Arena>(dry ? Arena::Mode::kMeasure : Arena::Mode::kReal, measured.used_bytes());
  Allocate(*arena_, compute_dtype, moments);
}

ShardedWeights::~ShardedWeights() {
  std::vector<Event> events;
  for (const WeightSlot& slot : weight_slots_) events.push_back(slot.gathered);
  for (const GradientSlot& slot : gradient_slots_) events.push_back(slot.summed);
  for (const Event& event : events) {
    try {
      event.Wait();
    } catch (...) {  // a peer failed, which is said elsewhere
    }
  }
}

std::vector<int64_t> ShardedWeights::KeptSizes() const {
  std::vector<int64_t> sizes;
  for (const ParamUnit& unit : table_.units) sizes.push_back(KeptBy(shard_, unit.num_elements).size());
  return sizes;
}

void ShardedWeights::Allocate(Arena& arena, DType compute_dtype, Moments moments) {
  units_.clear();
  for (const ParamUnit& rows : table_.units) {
    Unit& unit = units_.emplace_back();
    unit.num_elements = rows.num_elements;
    unit.kept = KeptBy(shard_, unit.num_elements);
  }
  AllocateWeights(arena, compute_dtype);
  if (moments != Moments::kNoGradients) AllocateGradients(arena);
}

// What comes from the tier lies first, in whole blocks of it.
void ShardedWeights::AllocateWeights(Arena& arena, DType compute_dtype) {
  weight_slots_.assign(IsTransient() ? kSharedSlots : units_.size(), {});
  std::vector<int64_t> bytes(weight_slots_.size()), packed_bytes(weight_slots_.size());
  for (int u = 0; u < table_.num_units(); ++u) {
    const size_t slot = WeightSlotOf(u);
    bytes[slot] = std::max(bytes[slot], At(u).num_elements * SizeOf(compute_dtype));
    packed_bytes[slot] = std::max(packed_bytes[slot],
                                  PackedBytes(table_.units[static_cast<size_t>(u)], compute_dtype, backend_));
  }
  std::vector<Tensor> memory(weight_slots_.size()), packed(weight_slots_.size());
  if (IsTransient()) {
    const char* const name = is_sharded() ? "weights.gathered" : "weights in flight";
    for (size_t slot = 0; slot < memory.size(); ++slot)
      memory[slot] =
          arena.Allocate(name, DType::kByte, {state_.offloads() ? Tier::InBlocks(bytes[slot]) : bytes[slot]});
  }
  state_.Allocate(arena);
  for (size_t slot = 0; slot < packed.size(); ++slot)
    if (packed_bytes[slot] > 0)
      packed[slot] = arena.Allocate("weights.packed", DType::kByte, {packed_bytes[slot]});

  for (int u = 0; u < table_.num_units(); ++u) {
    const ParamUnit& rows = table_.units[static_cast<size_t>(u)];
    const size_t slot = WeightSlotOf(u);
    Unit& unit = At(u);
    unit.whole =
        IsTransient() ? Tensor(memory[slot].raw(), compute_dtype, {unit.num_elements}) : state_.ForModel(u);
    int64_t begin = 0;
    for (const Tensor& values : UnitViews(rows, unit.whole)) {
      const ParamRow& row = rows.rows[unit.weights.size()];
      const int64_t end = begin + PackedBytes(row, compute_dtype, backend_);
      Weight weight{.values = values, .packed = {}};
      if (end > begin) weight.packed = packed[slot].Rows(begin, begin + backend_->PackedBytes(values));
      unit.weights.push_back(weight);
      begin = end;
    }
  }
}

void ShardedWeights::AllocateGradients(Arena& arena) {
  const auto flat = [&](const char* name, int64_t n) { return arena.Allocate(name, DType::kFloat32, {n}); };
  if (!IsInPlace())
    for (Unit& unit : units_) unit.gradient = flat("gradients", unit.kept.size());
  gradient_slots_.assign(is_sharded() ? kSharedSlots : units_.size(), {});
  std::vector<int64_t> num_elements(gradient_slots_.size());
  for (int u = 0; u < table_.num_units(); ++u) {
    int64_t& largest = num_elements[GradientSlotOf(u)];
    largest = std::max(largest, At(u).num_elements);
  }
  std::vector<Tensor> memory;
  for (const int64_t n : num_elements)
    memory.push_back(flat(IsInPlace() ? "gradients" : "gradients.local", n));
  for (int u = 0; u < table_.num_units(); ++u) {
    Unit& unit = At(u);
    unit.local = memory[GradientSlotOf(u)].Rows(0, unit.num_elements);
    unit.local_views = UnitViews(table_.units[static_cast<size_t>(u)], unit.local);
    if (IsInPlace()) unit.gradient = unit.local;
  }
}

// Of three. The model works at one unit and fetches the next, and a gradient is summed while the next is
// made: two for units that follow each other. The embedding's has its own, as it is larger; if it is the head
// as well, the two are at work together with the last unit, which then is a mere norm; else the last unit,
// which is as large, shares it.
int ShardedWeights::SharedSlotOf(int unit) const {
  const bool tied = table_.units[0].rows[0].in_products;
  if (unit == 0 || (unit == table_.num_units() - 1 && !tied)) return 0;
  return 1 + unit % 2;
}

Range ShardedWeights::KeptBy(int shard, int64_t num_elements) const {
  const int64_t blocks = (Backend::NormBlocks(num_elements) + num_shards_ - 1) / num_shards_;
  return {std::min(num_elements, shard * blocks * kBlock),
          std::min(num_elements, (shard + 1) * blocks * kBlock)};
}

Range ShardedWeights::SummedBy(int replica, Range kept) const {
  return {kept.begin + kept.size() * replica / num_replicas_,
          kept.begin + kept.size() * (replica + 1) / num_replicas_};
}

std::vector<int> ShardedWeights::RanksInOrder() const {
  std::vector<int> ranks;
  for (int shard = 0; shard < num_shards_; ++shard)
    for (int replica = 0; replica < num_replicas_; ++replica) ranks.push_back(replica * num_shards_ + shard);
  return ranks;
}

Range ShardedWeights::Kept(int unit, Range elements) const {
  const Range kept = At(unit).kept;
  return {std::max(kept.begin, elements.begin), std::min(kept.end, elements.end)};
}

void ShardedWeights::Wait(const Event& event) const {
  if (backend_ == nullptr) return event.Wait();
  backend_->Wait(event);
}

// Weights.

void ShardedWeights::Prefetch(int unit) {
  WeightSlot& slot = weight_slots_[WeightSlotOf(unit)];
  if (slot.unit == unit) return;
  CHECK(!slot.in_use);
  slot.unit = unit;
  slot.packed = false;
  if (!IsTransient()) return;
  WaitFor(slot);  // of a unit that was fetched but not used
  const Unit& u = At(unit);
  Tensor shard;
  if (state_.offloads_parameters()) {
    shard = u.whole.Rows(u.kept.begin, u.kept.end);
    slot.fetched = state_.FetchForModel(unit, shard);
  } else {
    shard = state_.ForModel(unit);
  }
  if (!is_sharded()) return;
  std::vector<Range> pieces;
  for (int rank = 0; rank < num_shards_; ++rank) pieces.push_back(KeptBy(rank, u.num_elements));
  slot.gathered = ranks_.shards->AllGather(shard, u.whole, pieces, /*after=*/slot.fetched);
}

void ShardedWeights::WaitFor(WeightSlot& slot) {
  state_.Wait(slot.fetched);
  Wait(slot.gathered);
  slot.fetched = slot.gathered = {};
}

std::span<const Weight> ShardedWeights::Get(int unit) {
  Prefetch(unit);
  WeightSlot& slot = weight_slots_[WeightSlotOf(unit)];
  slot.in_use = true;
  WaitFor(slot);
  const std::vector<Weight>& weights = At(unit).weights;
  for (const Weight& weight : weights)
    if (!slot.packed && !weight.packed.IsNull()) backend_->Pack(weight.values, weight.packed);
  slot.packed = true;
  return weights;
}

void ShardedWeights::Release(int unit) { weight_slots_[WeightSlotOf(unit)].in_use = false; }

void ShardedWeights::Changed(int unit, bool with_moments) {
  WeightSlot& slot = weight_slots_[WeightSlotOf(unit)];
  CHECK(slot.gathered.Done());  // or a peer may have read both old and new values
  if (slot.unit == unit) slot.unit = -1;
  state_.Changed(unit, with_moments);
}

void ShardedWeights::Initialize(double initializer_range, uint64_t seed) {
  ForEachState([&](int unit, const UnitState& state) {
    for (const ParamRow& row : table_.units[static_cast<size_t>(unit)].rows) {
      const Range part = Kept(unit, {row.offset, row.offset + row.num_elements});
      if (part.empty()) continue;
      InitializeParam(row, initializer_range, seed, NumThreads(), part.begin - row.offset,
                      state.master.Rows(part.begin - Kept(unit).begin, part.end - Kept(unit).begin));
    }
    RefreshCompute(unit);
    Changed(unit, /*with_moments=*/false);
  });
}

void ShardedWeights::RefreshCompute(int unit) {
  const UnitState& state = State(unit);
  if (state.compute.IsNull()) return;
  const float* master = state.master.data<float>();
  BFloat16* compute = state.compute.data<BFloat16>();
  constexpr int64_t kElements = int64_t{1} << 16;  // at a time
  cpu::ParallelBlocks(NumThreads(), Kept(unit).size(), kElements, [&](int64_t begin, int64_t end) {
    std::transform(master + begin, master + end, compute + begin, [](float x) { return BFloat16(x); });
  });
}

// Gradients.

std::span<const Tensor> ShardedWeights::Grad(int unit) {
  GradientSlot& slot = gradient_slots_[GradientSlotOf(unit)];
  if (slot.unit != unit || slot.complete) {
    Land(slot);
    CHECK(!At(unit).has_sum || !IsInPlace());  // there is room for one pass
    backend_->Zero(At(unit).local);
    slot.unit = unit;
  }
  return At(unit).local_views;
}

void ShardedWeights::GradReady(int unit) {
  GradientSlot& slot = gradient_slots_[GradientSlotOf(unit)];
  CHECK(slot.unit == unit && !slot.complete);
  slot.complete = true;
  slot.summed = StartSum(At(unit));
}

// In place: of `local`, what this rank keeps becomes the sum.
Event ShardedWeights::StartSum(const Unit& unit) {
  if (num_replicas_ * num_shards_ == 1) return {};
  std::vector<Range> sums, parts;
  for (int replica = 0; replica < num_replicas_; ++replica)
    for (int shard = 0; shard < num_shards_; ++shard)
      sums.push_back(SummedBy(replica, KeptBy(shard, unit.num_elements)));
  const Range mine = SummedBy(replica_, unit.kept);
  const Tensor my_sum = unit.local.Rows(mine.begin, mine.end);
  const Event summed = ranks_.all->ReduceScatter(unit.local, my_sum, sums);
  if (num_replicas_ == 1) return summed;
  for (int replica = 0; replica < num_replicas_; ++replica) {
    const Range sum = SummedBy(replica, unit.kept);
    parts.push_back({sum.begin - unit.kept.begin, sum.end - unit.kept.begin});
  }
  return ranks_.replicas->AllGather(my_sum, unit.local.Rows(unit.kept.begin, unit.kept.end), parts, summed);
}

// A gradient that is on its way arrives, and its slot is free.
void ShardedWeights::Land(GradientSlot& slot) {
  if (slot.unit < 0) return;
  CHECK(slot.complete);
  Wait(slot.summed);
  Unit& unit = At(slot.unit);
  const Tensor sum = unit.local.Rows(unit.kept.begin, unit.kept.end);
  if (!IsInPlace()) {
    if (unit.has_sum)
      backend_->Add(sum, unit.gradient);
    else
      backend_->Copy(sum, unit.gradient);
  }
  unit.has_sum = true;
  slot.unit = -1;
  slot.complete = false;
}

void ShardedWeights::ZeroGradients() {
  FinishGradients();
  for (Unit& unit : units_) unit.has_sum = false;
}

void ShardedWeights::FinishGradients() {
  for (GradientSlot& slot : gradient_slots_) Land(slot);
}

double ShardedWeights::GradientSumOfSquares() {
  FinishGradients();
  constexpr int64_t kSum = sizeof(double);
  Arena::Scope scope(backend_->arena());
  std::vector<Tensor> sums;  // of the units' blocks
  std::vector<Event> gathered;
  for (const Unit& unit : units_) {
    const auto bytes_of = [&](Range elements) {
      return Range{Backend::NormBlocks(elements.begin) * kSum, Backend::NormBlocks(elements.end) * kSum};
    };
    const Range mine = bytes_of(unit.kept);
    sums.push_back(backend_->arena().Allocate("gradient norm workspace", DType::kByte,
                                              {Backend::NormBlocks(unit.num_elements) * kSum}));
    const Tensor my_sums = sums.back().Rows(mine.begin, mine.end);
    backend_->SumsOfSquares(unit.gradient, my_sums);
    if (!is_sharded()) continue;
    std::vector<Range> pieces;
    for (int shard = 0; shard < num_shards_; ++shard)
      pieces.push_back(bytes_of(KeptBy(shard, unit.num_elements)));
    gathered.push_back(ranks_.shards->AllGather(my_sums, sums.back(), pieces));
  }
  for (const Event& event : gathered) Wait(event);
  if (backend_->dry()) return 0;
  double total = 0;
  for (const Tensor& unit : sums) {
    const double* blocks = static_cast<const double*>(unit.raw());
    for (int64_t i = 0; i < unit.num_bytes() / kSum; ++i) total += blocks[i];
  }
  return total;
}

Tensor ShardedWeights::Gather(int unit, Tensor UnitState::*tensor) {
  return replica_ > 0 ? Tensor() : GatherShards(unit, State(unit).*tensor);
}

Tensor ShardedWeights::GatherGradient(int unit) {
  return replica_ > 0 ? Tensor() : GatherShards(unit, At(unit).gradient);
}

Tensor ShardedWeights::GatherShards(int unit, Tensor shard) {
  if (!is_sharded()) return shard;
  if (shard_ > 0) {
    Wait(ranks_.shards->Send(shard, 0));
    return {};
  }
  const Unit& u = At(unit);
  for (const GradientSlot& slot : gradient_slots_) CHECK(slot.unit < 0);  // its memory is what is written to
  std::vector<Event> events = {ranks_.shards->Send(shard, 0)};
  for (int from = 0; from < num_shards_; ++from) {
    const Range kept = KeptBy(from, u.num_elements);
    events.push_back(ranks_.shards->Recv(u.local.Rows(kept.begin, kept.end), from));
  }
  for (const Event& event : events) Wait(event);
  return u.local;
}

}  // namespace longspan
