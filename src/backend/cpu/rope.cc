#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace longspan::cpu {

void Rope(Threads threads, Tensor x, Tensor positions, const RopeTables& tables, bool inverse) {
  const int64_t heads = x.dim(1), head_dim = x.dim(2), pairs = tables.fine.dim(1);
  const int64_t period = RopeTables::kPeriod;
  const int64_t* position = positions.data<int64_t>();
  for (int64_t t = 0; t < x.dim(0); ++t) {
    CHECK(position[t] >= 0 && position[t] < tables.coarse.dim(0) * period);
  }
  const float *coarse = tables.coarse.data<float>(), *fine = tables.fine.data<float>();
  constexpr int64_t kBlock = 32;
  WithFloatType(x.dtype(), [&]<class T>(T*) {
    T* data = x.data<T>();
    const auto rope = threads.kernels.For<T>().rope;
    ParallelBlocks(threads.num, x.dim(0), kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        rope(data + t * heads * head_dim, heads, head_dim, pairs, coarse + position[t] / period * 2 * pairs,
             fine + position[t] % period * 2 * pairs, inverse);
      }
    });
  });
}

}  // namespace longspan::cpu
