#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/row_sums.h"
#include "backend/shapes.h"

namespace longspan::cpu {
namespace {

template <class T>
NormWeight<T> WeightOf(const Norm& norm) {
  return {norm.weight.data<T>(), norm.epsilon, norm.offset};
}

}  // namespace

void RmsNorm(Threads threads, Tensor x, const Norm& norm, Tensor y) {
  const auto [rows, width] = shapes::RowsOf(x);
  WithFloatType(x.dtype(), [&, rows = rows, width = width]<class T>(T*) {
    const T* from = x.data<T>();
    const NormWeight<T> weight = WeightOf<T>(norm);
    T* to = y.data<T>();
    const auto kernel = threads.kernels.For<T>().rms_norm;
    ParallelBlocks(threads.num, rows, kSumBlockRows, [&](int64_t begin, int64_t end) {
      kernel(from + begin * width, weight, to + begin * width, end - begin, width);
    });
  });
}

void AddRmsNorm(Threads threads, Tensor x, Tensor sum, const Norm& norm, Tensor y) {
  const auto [rows, width] = shapes::RowsOf(x);
  WithFloatType(x.dtype(), [&, rows = rows, width = width]<class T>(T*) {
    const T* from = x.data<T>();
    const NormWeight<T> weight = WeightOf<T>(norm);
    T *residual = sum.data<T>(), *to = y.data<T>();
    const auto kernel = threads.kernels.For<T>().add_rms_norm;
    ParallelBlocks(threads.num, rows, kSumBlockRows, [&](int64_t begin, int64_t end) {
      const int64_t offset = begin * width;
      kernel(from + offset, residual + offset, weight, to + offset, end - begin, width);
    });
  });
}

int64_t RmsNormBackwardWorkspace(const Tensor& x) {
  const auto [rows, width] = shapes::RowsOf(x);
  return RowSumsWorkspace(rows, width);
}

void RmsNormBackward(Threads threads, Tensor x, const Norm& norm, Tensor dy, Tensor dx, Tensor dweight,
                     bool accumulate, Tensor workspace) {
  const auto [rows, width] = shapes::RowsOf(x);
  WithFloatType(x.dtype(), [&, rows = rows, width = width]<class T>(T*) {
    const T* from = x.data<T>();
    const NormWeight<T> weight = WeightOf<T>(norm);
    const float* upstream = dy.data<float>();
    T* to = dx.data<T>();
    const TypedKernels<T>& kernels = threads.kernels.For<T>();
    const auto kernel = accumulate ? kernels.rms_norm_backward_add : kernels.rms_norm_backward;
    SumRows(threads, rows, width, workspace, dweight.data<float>(),
            [&](int64_t begin, int64_t end, float* sum) {
              const int64_t offset = begin * width;
              kernel(from + offset, weight, upstream + offset, to + offset, sum, end - begin, width);
            });
  });
}

}  // namespace longspan::cpu
