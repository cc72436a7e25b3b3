// What a model needs around it, in its simplest or its most suspicious form. For tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "model/activations.h"
#include "model/params.h"
#include "model/weight_store.h"
#include "parallel/strategy.h"

namespace longspan::testing {

// Attention of one rank that holds the whole sequence.
class LocalAttention final : public AttentionStrategy {
 public:
  void Forward(Backend& backend, const SequenceShards& s, Tensor q, Tensor k, Tensor v, Tensor out,
               Tensor lse) override {
    ++num_forwards;
    backend.AttentionForward(Call(s), q, k, v, /*first=*/true, /*last=*/true, {}, out, lse);
  }
  void Backward(Backend& backend, const SequenceShards& s, Tensor q, Tensor k, Tensor v, Tensor dout,
                Tensor lse, Tensor delta, Tensor dq, Tensor dk, Tensor dv) override {
    Arena::Scope scope(backend.arena());
    const Tensor gradients[] = {dq, dk, dv};
    Tensor sums[3];
    for (int i = 0; i < 3; ++i) {
      sums[i] = backend.arena().Allocate("sum", DType::kFloat32, gradients[i].shape());
      backend.Zero(sums[i]);
    }
    backend.AttentionBackward(Call(s), q, k, v, dout, lse, delta, sums[0], sums[1], sums[2]);
    for (int i = 0; i < 3; ++i) backend.Cast(sums[i], gradients[i]);
  }

  int num_forwards = 0;

 private:
  static AttentionCall Call(const SequenceShards& s) {
    return {.mask = s.mask,
            .query_spans = s.spans[0],
            .key_spans = s.spans[0],
            .kv_of = s.kv_of,
            .scale = s.scale,
            .soft_cap = s.soft_cap};
  }
};

// Weights in memory that insist on the protocol of WeightStore. Weights that aren't in use are NaN.
class CheckedWeights final : public WeightStore {
 public:
  CheckedWeights(const ParamTable& table, DType dtype) : table_(table), dtype_(dtype) {
    for (const ParamUnit& unit : table.units) {
      Unit u;
      u.master = Buffer(DType::kFloat32, {unit.num_elements});
      u.in_use = Buffer(dtype, {unit.num_elements});
      u.grad = Buffer(DType::kFloat32, {unit.num_elements});
      u.master_views = UnitViews(unit, u.master.tensor());
      for (const Tensor& values : UnitViews(unit, u.in_use.tensor())) u.weights.push_back({values, {}});
      u.grad_views = UnitViews(unit, u.grad.tensor());
      units_.push_back(std::move(u));
    }
    for (int unit = 0; unit < table.num_units(); ++unit) Forget(unit);
  }

  void Initialize(double range, uint64_t seed) {
    for (size_t i = 0; i < units_.size(); ++i) {
      for (size_t p = 0; p < table_.units[i].rows.size(); ++p) {
        InitializeParam(table_.units[i].rows[p], range, seed, /*num_threads=*/1, /*first=*/0,
                        units_[i].master_views[p]);
        if (table_.units[i].rows[p].kind != ParamKind::kVector) continue;
        // Gains of 1 would hide a gain that is forgotten.
        const CounterRandom random(seed, table_.units[i].rows[p].name);
        float* gain = units_[i].master_views[p].data<float>();
        for (int64_t e = 0; e < table_.units[i].rows[p].num_elements; ++e)
          gain[e] += static_cast<float>(0.5 * random.Normal(static_cast<uint64_t>(e)));
      }
    }
  }

  void Prefetch(int unit) override { At(unit).prefetched = true; }
  std::span<const Weight> Get(int unit) override {
    Unit& u = At(unit);
    EXPECT_TRUE(u.prefetched) << "unit " << unit << " was not prefetched";
    EXPECT_FALSE(u.got) << "unit " << unit << " is in use already";
    u.got = true;
    const float* master = u.master.tensor().data<float>();
    for (int64_t i = 0; i < u.master.tensor().num_elements(); ++i) Set(u, i, master[i]);
    return u.weights;
  }
  void Release(int unit) override {
    EXPECT_TRUE(At(unit).got) << "unit " << unit << " is not in use";
    Forget(unit);
  }
  std::span<const Tensor> Grad(int unit) override {
    EXPECT_FALSE(At(unit).ready) << "unit " << unit << " was said to be ready";
    return At(unit).grad_views;
  }
  void GradReady(int unit) override {
    EXPECT_FALSE(At(unit).ready);
    At(unit).ready = true;
  }

  // After a pass: everything is released, nothing was prefetched in vain, and all gradients are ready or,
  // without a backward pass, none. Then the next pass may begin.
  void EndPass(bool with_gradients) {
    for (size_t i = 0; i < units_.size(); ++i) {
      EXPECT_FALSE(units_[i].got) << "unit " << i;
      EXPECT_FALSE(units_[i].prefetched) << "unit " << i;
      EXPECT_EQ(units_[i].ready, with_gradients) << "unit " << i;
      units_[i].ready = false;
    }
  }
  void ZeroGradients() {
    for (Unit& u : units_) std::memset(u.grad.data(), 0, static_cast<size_t>(u.grad.num_bytes()));
  }

  // By Hugging Face name, in row order.
  std::map<std::string, std::vector<float>> Gradients() const { return Collect(&Unit::grad_views); }
  std::map<std::string, std::vector<float>> Masters() const { return Collect(&Unit::master_views); }

 private:
  struct Unit {
    Buffer master, in_use, grad;
    std::vector<Tensor> master_views, grad_views;
    std::vector<Weight> weights;
    bool prefetched = false, got = false, ready = false;
  };
  Unit& At(int unit) { return units_.at(static_cast<size_t>(unit)); }
  void Set(Unit& u, int64_t i, float x) {
    if (dtype_ == DType::kFloat32)
      u.in_use.tensor().data<float>()[i] = x;
    else
      u.in_use.tensor().data<BFloat16>()[i] = BFloat16(x);
  }
  void Forget(int unit) {
    Unit& u = At(unit);
    u.got = u.prefetched = false;
    for (int64_t i = 0; i < u.master.tensor().num_elements(); ++i)
      Set(u, i, std::numeric_limits<float>::quiet_NaN());
  }
  std::map<std::string, std::vector<float>> Collect(std::vector<Tensor> Unit::*views) const {
    std::map<std::string, std::vector<float>> result;
    for (size_t i = 0; i < units_.size(); ++i)
      for (size_t p = 0; p < table_.units[i].rows.size(); ++p) {
        const Tensor view = (units_[i].*views)[p];
        result[table_.units[i].rows[p].name].assign(view.data<float>(),
                                                    view.data<float>() + view.num_elements());
      }
    return result;
  }

  const ParamTable& table_;
  const DType dtype_;
  std::vector<Unit> units_;
};

// Behaves as if it moved activations elsewhere: two layers' slots are used in turns, and are NaN when handed
// out; what was kept comes back, in other memory, only after it was asked for.
class StagedActivations final : public ActivationStore {
 public:
  StagedActivations(const ModelConfig& config, int64_t rows, DType dtype, const ActivationPolicy& policy)
      : away_(static_cast<size_t>(config.num_hidden_layers)) {
    for (const ActivationRow& row : ActivationTable())
      if (policy.Keeps(row.id)) kept_.insert(row.id);
    for (const Activation id : kept_)
      for (int place = 0; place < 4; ++place) {  // two to write, two to give back
        const Tensor shape = ActivationShape(config, id, rows, dtype);
        Buffer buffer(shape.num_bytes());
        const Tensor slot(buffer.data(), shape.dtype(), shape.shape());
        places_[id].emplace_back(std::move(buffer), slot);
      }
  }

  bool Kept(Activation id) const override { return kept_.contains(id); }
  Tensor Slot(int layer, Activation id) override {
    const Tensor slot = places_.at(id)[static_cast<size_t>(layer % 2)].second;
    std::memset(slot.raw(), 0xff, static_cast<size_t>(slot.num_bytes()));  // NaN in f32 and bf16
    return slot;
  }
  void Keep(int layer, Activation id) override {
    const Tensor slot = places_.at(id)[static_cast<size_t>(layer % 2)].second;
    const char* bytes = static_cast<const char*>(slot.raw());
    EXPECT_TRUE(away(layer).emplace(id, std::vector<char>(bytes, bytes + slot.num_bytes())).second);
  }
  void Prefetch(int layer) override {
    EXPECT_EQ(away(layer).size(), kept_.size()) << "layer " << layer;
    for (const auto& [id, bytes] : away(layer))
      std::memcpy(places_.at(id)[static_cast<size_t>(2 + layer % 2)].second.raw(), bytes.data(),
                  bytes.size());
    here_.insert(layer);
  }
  Tensor Take(int layer, Activation id) override {
    EXPECT_TRUE(here_.contains(layer)) << "layer " << layer << " was not prefetched";
    EXPECT_EQ(away(layer).erase(id), 1u)
        << "layer " << layer << ": " << RowOf(id).name << " was taken before";
    return places_.at(id)[static_cast<size_t>(2 + layer % 2)].second;
  }

  void EndPass() {
    for (const auto& layer : away_) EXPECT_TRUE(layer.empty());
    here_.clear();
  }

 private:
  std::map<Activation, std::vector<char>>& away(int layer) { return away_.at(static_cast<size_t>(layer)); }

  std::set<Activation> kept_;
  std::map<Activation, std::vector<std::pair<Buffer, Tensor>>> places_;
  std::vector<std::map<Activation, std::vector<char>>> away_;
  std::set<int> here_;
};

}  // namespace longspan::testing
