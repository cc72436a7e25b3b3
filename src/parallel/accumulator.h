// Accumulator: where a strategy sums a gradient.
#pragma once

#include <string_view>

#include "backend/backend.h"

namespace longspan {

// Sums in f32, whatever the dtype of the gradient: in the gradient itself if that is f32, else in scratch of
// the arena's open Scope, which Finish rounds once.
class Accumulator {
 public:
  // `name` of the scratch is a string literal. The sum begins at 0.
  Accumulator(Backend& backend, std::string_view name, Tensor gradient)
      : backend_(backend), gradient_(gradient), sum_(gradient) {
    CHECK(gradient.rank() == 3);
    if (gradient.dtype() != DType::kFloat32)
      sum_ = backend.arena().Allocate(name, DType::kFloat32,
                                      {gradient.dim(0), gradient.dim(1), gradient.dim(2)});
    backend.Zero(sum_);
  }

  Tensor sum() const { return sum_; }  // f32, the gradient's shape
  void Finish() {
    if (gradient_.dtype() != DType::kFloat32) backend_.Cast(sum_, gradient_);
  }

 private:
  Backend& backend_;
  Tensor gradient_, sum_;
};

}  // namespace longspan
