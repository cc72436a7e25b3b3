// FiniteWatch: finds the first tensor of a rank's step that is not finite, by the names that tensors have
// where the model hands them to its stores. It looks only while it is on: a step that went wrong is taken
// once more with it (train/not_finite.h), and all others cost nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "model/activations.h"
#include "model/weight_store.h"

namespace longspan {

// Whether no element is infinite or NaN; f32 or bf16, on the host.
bool AllFinite(Tensor x);

class FiniteWatch {
 public:
  // The order of a pass: what is found of a kind is later than all of those before.
  enum class Kind { kWeight, kActivation, kLoss, kGradient, kGradientSum };
  struct Finding {
    Kind kind = Kind::kWeight;
    int64_t order = 0;  // how many tensors of the kind were looked at before
    int unit = 0;       // the layer of an activation
    int row = 0;        // of the unit; the Activation
  };

  bool is_on() const { return is_on_; }
  // Forgets what was found, and looks from here on.
  void Start();
  void Stop() { is_on_ = false; }
  // The tensors are looked at in the order in which they are made, on every rank alike.
  void Look(Kind kind, int unit, int row, Tensor x);
  void LookAtLoss(double loss);
  // The first of the first kind of which any was found.
  const std::optional<Finding>& first() const { return first_; }

 private:
  void Add(Kind kind, int unit, int row, bool is_finite);

  bool is_on_ = false;
  int64_t num_looked_ = 0;
  std::optional<Finding> first_;
};

// The store that the model knows: another one, and the watch looks at what is kept.
class WatchedActivations final : public ActivationStore {
 public:
  WatchedActivations(ActivationStore& store, FiniteWatch& watch) : store_(store), watch_(watch) {}
  bool Kept(Activation id) const override { return store_.Kept(id); }
  Tensor Slot(int layer, Activation id) override { return store_.Slot(layer, id); }
  void Keep(int layer, Activation id) override;
  void Prefetch(int layer) override { store_.Prefetch(layer); }
  Tensor Take(int layer, Activation id) override { return store_.Take(layer, id); }

 private:
  ActivationStore& store_;
  FiniteWatch& watch_;
};

// Likewise, and it looks at what a pass of this rank alone adds to the gradients.
class WatchedWeights final : public WeightStore {
 public:
  WatchedWeights(WeightStore& store, FiniteWatch& watch) : store_(store), watch_(watch) {}
  void Prefetch(int unit) override { store_.Prefetch(unit); }
  std::span<const Weight> Get(int unit) override { return store_.Get(unit); }
  void Release(int unit) override { store_.Release(unit); }
  std::span<const Tensor> Grad(int unit) override { return store_.Grad(unit); }
  void GradReady(int unit) override;

 private:
  WeightStore& store_;
  FiniteWatch& watch_;
};

}  // namespace longspan
