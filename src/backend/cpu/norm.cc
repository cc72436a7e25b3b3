#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/shapes.h"

namespace longspan::cpu {
namespace {

constexpr int64_t kBlockRows = 64;
// The gain's gradient is a sum over all rows. Each block of rows sums from zero, and after this many blocks
// their sums are added to the total: the error then grows with the number of rounds, not of rows, and the
// workspace is bounded.
constexpr int64_t kBlocksPerRound = 32;

}  // namespace

void RmsNorm(Threads threads, Tensor x, Tensor weight, float epsilon, Tensor y) {
  const auto [rows, width] = shapes::RowsOf(x);
  WithFloatType(x.dtype(), [&, rows = rows, width = width]<class T>(T*) {
    const T *from = x.data<T>(), *gain = weight.data<T>();
    T* to = y.data<T>();
    const auto norm = threads.kernels.For<T>().rms_norm;
    ParallelBlocks(threads.num, rows, kBlockRows, [&](int64_t begin, int64_t end) {
      norm(from + begin * width, gain, epsilon, to + begin * width, end - begin, width);
    });
  });
}

void AddRmsNorm(Threads threads, Tensor x, Tensor sum, Tensor weight, float epsilon, Tensor y) {
  const auto [rows, width] = shapes::RowsOf(x);
  WithFloatType(x.dtype(), [&, rows = rows, width = width]<class T>(T*) {
    const T *from = x.data<T>(), *gain = weight.data<T>();
    T *residual = sum.data<T>(), *to = y.data<T>();
    const auto norm = threads.kernels.For<T>().add_rms_norm;
    ParallelBlocks(threads.num, rows, kBlockRows, [&](int64_t begin, int64_t end) {
      const int64_t offset = begin * width;
      norm(from + offset, residual + offset, gain, epsilon, to + offset, end - begin, width);
    });
  });
}

int64_t RmsNormBackwardWorkspace(const Tensor& x) {
  const auto [rows, width] = shapes::RowsOf(x);
  const int64_t blocks = std::min(kBlocksPerRound, (rows + kBlockRows - 1) / kBlockRows);
  return blocks * width * SizeOf(DType::kFloat32);
}

void RmsNormBackward(Threads threads, Tensor x, Tensor weight, float epsilon, Tensor dy, Tensor dx,
                     Tensor dweight, bool accumulate, Tensor workspace) {
  const auto [rows, width] = shapes::RowsOf(x);
  float* const partial = static_cast<float*>(workspace.raw());
  float* const total = dweight.data<float>();
  const auto add_to = threads.kernels.f32.accumulate;
  constexpr int64_t kRowsPerRound = kBlockRows * kBlocksPerRound;
  WithFloatType(x.dtype(), [&, rows = rows, width = width]<class T>(T*) {
    const T *from = x.data<T>(), *gain = weight.data<T>();
    const float* upstream = dy.data<float>();
    T* to = dx.data<T>();
    const TypedKernels<T>& kernels = threads.kernels.For<T>();
    const auto backward = accumulate ? kernels.rms_norm_backward_add : kernels.rms_norm_backward;
    for (int64_t first = 0; first < rows; first += kRowsPerRound) {
      const int64_t round = std::min(kRowsPerRound, rows - first);
      ParallelBlocks(threads.num, round, kBlockRows, [&](int64_t begin, int64_t end) {
        float* sum = partial + begin / kBlockRows * width;
        std::fill(sum, sum + width, 0.0f);
        const int64_t offset = (first + begin) * width;
        backward(from + offset, gain, epsilon, upstream + offset, to + offset, sum, end - begin, width);
      });
      for (int64_t block = 1; block * kBlockRows < round; ++block) {
        add_to(partial + block * width, partial, width);
      }
      add_to(partial, total, width);
    }
  });
}

}  // namespace longspan::cpu
