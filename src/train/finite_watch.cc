#include "train/finite_watch.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/check.h"

namespace longspan {

bool AllFinite(Tensor x) {
  const auto all = [&](auto* values, auto is_finite) {
    return std::all_of(values, values + x.num_elements(), is_finite);
  };
  if (x.dtype() == DType::kFloat32) return all(x.data<float>(), [](float v) { return std::isfinite(v); });
  return all(x.data<BFloat16>(), [](BFloat16 v) { return std::isfinite(static_cast<float>(v)); });
}

void FiniteWatch::Start() {
  is_on_ = true;
  num_looked_ = 0;
  first_.reset();
}

void FiniteWatch::Look(Kind kind, int unit, int row, Tensor x) { Add(kind, unit, row, AllFinite(x)); }

void FiniteWatch::LookAtLoss(double loss) { Add(Kind::kLoss, 0, 0, std::isfinite(loss)); }

void FiniteWatch::Add(Kind kind, int unit, int row, bool is_finite) {
  if (!is_on_) return;
  const int64_t order = num_looked_++;
  if (!is_finite && (!first_ || kind < first_->kind)) first_ = {kind, order, unit, row};
}

void WatchedActivations::Keep(int layer, Activation id) {
  // Rows that see nothing have a log-sum-exp of −∞.
  if (watch_.is_on() && id != Activation::kContextLse)
    watch_.Look(FiniteWatch::Kind::kActivation, layer, static_cast<int>(id), store_.Slot(layer, id));
  store_.Keep(layer, id);
}

void WatchedWeights::GradReady(int unit) {
  if (watch_.is_on()) {
    const std::span<const Tensor> gradients = store_.Grad(unit);
    for (size_t row = 0; row < gradients.size(); ++row)
      watch_.Look(FiniteWatch::Kind::kGradient, unit, static_cast<int>(row), gradients[row]);
  }
  store_.GradReady(unit);
}

}  // namespace longspan
