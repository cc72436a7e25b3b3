#include "backend/cpu/matmul.h"
#include "backend/cpu/parallel.h"
#include "backend/shapes.h"

namespace longspan::cpu {
namespace {

// One row of c at a time: c[i, :] = Σ_k a[i, k] · b[k, :], in tiles of columns that stay in registers.
constexpr int64_t kTile = 16;
constexpr int64_t kBlockRows = 4;

template <class T>
float At(const Tensor& x, bool transposed, int64_t i, int64_t j) {
  return static_cast<float>(x.data<T>()[transposed ? j * x.dim(1) + i : i * x.dim(1) + j]);
}

}  // namespace

// op(b) in f32, (k, n).
int64_t PlainMatmulWorkspace(const MatmulArgs& args) {
  const auto [m, n, k] = shapes::CheckMatmul(args);
  return m == 0 ? 0 : k * n * SizeOf(DType::kFloat32);
}

void PlainMatmul(int num_threads, const MatmulArgs& args, Tensor workspace) {
  const auto [m, n, k] = shapes::CheckMatmul(args);
  if (m == 0 || n == 0) return;
  float* const packed = static_cast<float*>(workspace.raw());
  WithFloatType(args.a.dtype(), [&, n = n, k = k, m = m]<class In>(In*) {
    ParallelFor(num_threads, k, [&](int64_t l) {
      for (int64_t j = 0; j < n; ++j) packed[l * n + j] = At<In>(args.b, args.transpose_b, l, j);
    });
    WithFloatType(args.c.dtype(), [&]<class Out>(Out*) {
      Out* const c = args.c.data<Out>();
      ParallelBlocks(num_threads, m, kBlockRows, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          for (int64_t j = 0; j < n; j += kTile) {
            const int64_t width = std::min(kTile, n - j);
            float sum[kTile] = {};
            for (int64_t l = 0; l < k; ++l) {
              const float x = At<In>(args.a, args.transpose_a, i, l);
              const float* row = packed + l * n + j;
              for (int64_t w = 0; w < width; ++w) sum[w] += x * row[w];
            }
            Out* to = c + i * n + j;
            for (int64_t w = 0; w < width; ++w) {
              to[w] = Out(args.accumulate ? static_cast<float>(to[w]) + sum[w] : sum[w]);
            }
          }
        }
      });
    });
  });
}

}  // namespace longspan::cpu
