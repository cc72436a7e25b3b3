// What the products of a layer work on: y = x·Wᵀ and its two gradients, the weights' added to in f32. As in a
// step, weights are packed beforehand where the backend has such a form.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "bench/cases.h"
#include "bench/measure.h"
#include "model/linear.h"

namespace longspan::bench {

struct ProductProblem {
  ProductProblem(const Product& product, int64_t rows, DType dtype)
      : x(RandomBuffer("x", dtype, {rows, product.in})),
        values(RandomBuffer("weight", dtype, {product.out, product.in})),
        dy(RandomBuffer("dy", dtype, {rows, product.out})),
        y(product.out_dtype, {rows, product.out}),
        dx(dtype, {rows, product.in}),
        dweight(DType::kFloat32, {product.out, product.in}) {}

  // Before the products of a backend, and of others with the same form.
  void Pack(Backend& backend) {
    packed = Buffer(backend.PackedBytes(values.tensor()));
    backend.Pack(values.tensor(), packed.tensor());
  }
  Weight weight() const {
    return {.values = values.tensor(), .packed = packed.num_bytes() > 0 ? packed.tensor() : Tensor()};
  }
  void Forward(Backend& backend) const { Linear(backend, x.tensor(), weight(), y.tensor()); }
  void InputGradient(Backend& backend) const {
    LinearBackwardInput(backend, dy.tensor(), weight(), dx.tensor());
  }
  void WeightGradient(Backend& backend) const {
    LinearBackwardWeight(backend, dy.tensor(), x.tensor(), dweight.tensor());
  }

  Buffer x, values, dy, y, dx, dweight, packed;
};

}  // namespace longspan::bench
