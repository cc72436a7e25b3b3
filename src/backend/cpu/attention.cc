#include "backend/cpu/attention.h"

#include <algorithm>

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/parallel.h"
#include "core/check.h"

namespace longspan::cpu {

const AttentionKernels& AttentionKernelsFor(CpuTarget target) {
  switch (target) {
    case CpuTarget::kScalar:
      return kScalarAttention;
    case CpuTarget::kAvx2:
      return kAvx2Attention;
    case CpuTarget::kAvx512:
      return kAvx512Attention;
  }
  CHECK(false);
  return kScalarAttention;
}

void AttentionDelta(Tensor out, Tensor dout, Tensor delta, CpuTarget target, int num_threads) {
  const AttentionKernels& kernels = AttentionKernelsFor(target);
  const int64_t width = out.dim(2);
  const bool is_bf16 = out.dtype() == DType::kBFloat16;
  ParallelBlocks(num_threads, out.dim(0), 64, [&](int64_t begin, int64_t end) {
    const Tensor o = out.Rows(begin, end), d = dout.Rows(begin, end);
    kernels.delta(o.raw(), d.raw(), is_bf16, (end - begin) * out.dim(1), width,
                  delta.data<float>() + begin * out.dim(1));
  });
}

}  // namespace longspan::cpu
