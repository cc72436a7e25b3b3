#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/row_sums.h"
#include "backend/shapes.h"

namespace longspan::cpu {

void AddBias(Threads threads, Tensor bias, Tensor y) {
  const auto [rows, width] = shapes::RowsOf(y);
  WithFloatType(y.dtype(), [&, rows = rows, width = width]<class T>(T*) {
    const T* from = bias.data<T>();
    T* to = y.data<T>();
    const auto add = threads.kernels.For<T>().add;
    ParallelBlocks(threads.num, rows, kSumBlockRows, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) add(from, to + row * width, width);
    });
  });
}

int64_t AddBiasBackwardWorkspace(const Tensor& dy) {
  const auto [rows, width] = shapes::RowsOf(dy);
  return RowSumsWorkspace(rows, width);
}

void AddBiasBackward(Threads threads, Tensor dy, Tensor dbias, Tensor workspace) {
  const auto [rows, width] = shapes::RowsOf(dy);
  WithFloatType(dy.dtype(), [&, rows = rows, width = width]<class T>(T*) {
    const T* from = dy.data<T>();
    const auto accumulate = threads.kernels.For<T>().accumulate;
    SumRows(threads, rows, width, workspace, dbias.data<float>(),
            [&](int64_t begin, int64_t end, float* sum) {
              for (int64_t row = begin; row < end; ++row) accumulate(from + row * width, sum, width);
            });
  });
}

}  // namespace longspan::cpu
