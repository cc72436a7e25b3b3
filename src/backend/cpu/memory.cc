#include <cstring>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace longspan::cpu {
namespace {

// A share of work worth handing to another thread: tens of microseconds.
constexpr int64_t kBlockElements = int64_t{1} << 16;
constexpr int64_t kBlockBytes = int64_t{1} << 18;

// Calls body(src + …, dst + …) for the n heads of each token, as one piece of n · D elements.
template <class T, class Body>
void ForEachToken(Threads threads, const Tensor& src, int64_t src_head, const Tensor& dst, int64_t dst_head,
                  int64_t n, const Body& body) {
  const int64_t width = n * src.dim(2);
  if (width == 0) return;
  const int64_t src_stride = src.dim(1) * src.dim(2), dst_stride = dst.dim(1) * dst.dim(2);
  const T* from = src.data<T>() + src_head * src.dim(2);
  T* to = dst.data<T>() + dst_head * dst.dim(2);
  const int64_t block = std::max<int64_t>(1, kBlockElements / width);
  ParallelBlocks(threads.num, src.dim(0), block, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) body(from + t * src_stride, to + t * dst_stride, width);
  });
}

}  // namespace

void Zero(Threads threads, Tensor x) {
  char* data = static_cast<char*>(x.raw());
  ParallelBlocks(threads.num, x.num_bytes(), kBlockBytes, [&](int64_t begin, int64_t end) {
    std::memset(data + begin, 0, static_cast<size_t>(end - begin));
  });
}

void Copy(Threads threads, Tensor src, Tensor dst) {
  const char* from = static_cast<const char*>(src.raw());
  char* to = static_cast<char*>(dst.raw());
  ParallelBlocks(threads.num, src.num_bytes(), kBlockBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

void Cast(Threads threads, Tensor src, Tensor dst) {
  if (src.dtype() == dst.dtype()) return Copy(threads, src, dst);
  const bool narrow = src.dtype() == DType::kFloat32;
  ParallelBlocks(threads.num, src.num_elements(), kBlockElements, [&](int64_t begin, int64_t end) {
    if (narrow) {
      threads.kernels.to_bf16(src.data<float>() + begin, dst.data<BFloat16>() + begin, end - begin);
    } else {
      threads.kernels.to_f32(src.data<BFloat16>() + begin, dst.data<float>() + begin, end - begin);
    }
  });
}

void Add(Threads threads, Tensor x, Tensor y) {
  WithFloatType(x.dtype(), [&]<class T>(T*) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const auto add = threads.kernels.For<T>().add;
    ParallelBlocks(threads.num, x.num_elements(), kBlockElements,
                   [&](int64_t begin, int64_t end) { add(from + begin, to + begin, end - begin); });
  });
}

void Scale(Threads threads, float factor, Tensor x) {
  WithFloatType(x.dtype(), [&]<class T>(T*) {
    T* data = x.data<T>();
    const auto scale = threads.kernels.For<T>().scale;
    ParallelBlocks(threads.num, x.num_elements(), kBlockElements,
                   [&](int64_t begin, int64_t end) { scale(factor, data + begin, end - begin); });
  });
}

void CopyHeads(Threads threads, Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) {
  WithFloatType(src.dtype(), [&]<class T>(T*) {
    ForEachToken<T>(threads, src, src_head, dst, dst_head, n, [](const T* from, T* to, int64_t width) {
      std::memcpy(to, from, static_cast<size_t>(width) * sizeof(T));
    });
  });
}

void AddHeads(Threads threads, Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) {
  WithFloatType(src.dtype(), [&]<class T>(T*) {
    ForEachToken<T>(threads, src, src_head, dst, dst_head, n, threads.kernels.For<T>().add);
  });
}

}  // namespace longspan::cpu
