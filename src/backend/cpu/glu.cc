#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace longspan::cpu {
namespace {

constexpr int64_t kBlock = int64_t{1} << 14;

template <class T>
auto ForwardKernel(const TypedKernels<T>& kernels, GateActivation activation) {
  return activation == GateActivation::kSilu ? kernels.swiglu : kernels.geglu;
}
template <class T>
auto BackwardKernel(const TypedKernels<T>& kernels, GateActivation activation) {
  return activation == GateActivation::kSilu ? kernels.swiglu_backward : kernels.geglu_backward;
}

}  // namespace

void Glu(Threads threads, GateActivation activation, Tensor gate, Tensor up, Tensor out) {
  WithFloatType(gate.dtype(), [&]<class T>(T*) {
    const T *g = gate.data<T>(), *u = up.data<T>();
    T* to = out.data<T>();
    const auto forward = ForwardKernel<T>(threads.kernels.For<T>(), activation);
    ParallelBlocks(threads.num, gate.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
      forward(g + begin, u + begin, to + begin, end - begin);
    });
  });
}

void GluBackward(Threads threads, GateActivation activation, Tensor gate, Tensor up, Tensor dout,
                 Tensor dgate, Tensor dup) {
  WithFloatType(gate.dtype(), [&]<class T>(T*) {
    const T *g = gate.data<T>(), *u = up.data<T>(), *d = dout.data<T>();
    T *dg = dgate.data<T>(), *du = dup.data<T>();
    const auto backward = BackwardKernel<T>(threads.kernels.For<T>(), activation);
    ParallelBlocks(threads.num, gate.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
      backward(g + begin, u + begin, d + begin, dg + begin, du + begin, end - begin);
    });
  });
}

}  // namespace longspan::cpu
