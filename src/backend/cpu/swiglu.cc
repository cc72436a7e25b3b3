#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace longspan::cpu {
namespace {
constexpr int64_t kBlock = int64_t{1} << 14;
}

void SwiGlu(Threads threads, Tensor gate, Tensor up, Tensor out) {
  WithFloatType(gate.dtype(), [&]<class T>(T*) {
    const T *g = gate.data<T>(), *u = up.data<T>();
    T* to = out.data<T>();
    const auto swiglu = threads.kernels.For<T>().swiglu;
    ParallelBlocks(threads.num, gate.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
      swiglu(g + begin, u + begin, to + begin, end - begin);
    });
  });
}

void SwiGluBackward(Threads threads, Tensor gate, Tensor up, Tensor dout, Tensor dgate, Tensor dup) {
  WithFloatType(gate.dtype(), [&]<class T>(T*) {
    const T *g = gate.data<T>(), *u = up.data<T>(), *d = dout.data<T>();
    T *dg = dgate.data<T>(), *du = dup.data<T>();
    const auto backward = threads.kernels.For<T>().swiglu_backward;
    ParallelBlocks(threads.num, gate.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
      backward(g + begin, u + begin, d + begin, dg + begin, du + begin, end - begin);
    });
  });
}

}  // namespace longspan::cpu
