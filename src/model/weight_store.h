// WeightStore: where weights live. The model asks for a unit just before it needs it and says when it is
// done.
#pragma once

#include <span>

#include "core/tensor.h"

namespace longspan {

// A weight in the model's dtype.
struct Weight {
  Tensor values;
  Tensor packed;  // of a matrix, if the backend has such a form (Backend::Pack); else null
};

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  virtual void Prefetch(int unit) = 0;                // will be needed soon
  virtual std::span<const Weight> Get(int unit) = 0;  // in row order; valid until Release
  virtual void Release(int unit) = 0;
  virtual std::span<const Tensor> Grad(int unit) = 0;  // f32, in row order; the model adds to them
  virtual void GradReady(int unit) = 0;                // this micro-step's share is complete
};

}  // namespace longspan
