// WeightStore: where weights live. The model asks for a unit just before it needs it and says when it is
// done.
#pragma once

#include <span>

#include "core/tensor.h"

namespace longspan {

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  virtual void Prefetch(int unit) = 0;                // will be needed soon
  virtual std::span<const Tensor> Get(int unit) = 0;  // compute weights in row order; valid until Release
  virtual void Release(int unit) = 0;
  virtual std::span<const Tensor> Grad(int unit) = 0;  // f32, in row order; the model adds to them
  virtual void GradReady(int unit) = 0;                // this micro-step's share is complete
};

}  // namespace longspan
