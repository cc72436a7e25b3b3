#include "backend/cpu/attention.h"

#include <algorithm>

#include "backend/cpu/attention_heads.h"
#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/parallel.h"
#include "core/check.h"

namespace longspan::cpu {

const AttentionKernels& AttentionKernelsFor(CpuTarget target, DType dtype) {
  switch (target) {
    case CpuTarget::kScalar:
      return kScalarAttention;
    case CpuTarget::kAvx2:
      return kAvx2Attention;
    case CpuTarget::kAvx512:
      return kAvx512Attention;
    case CpuTarget::kAvx512Bf16:
      return dtype == DType::kBFloat16 ? kAvx512Bf16Attention : kAvx512Attention;
    case CpuTarget::kAmx:
      return dtype == DType::kBFloat16 ? kAmxAttention : kAvx512Attention;
    case CpuTarget::kAmxModel:
      return dtype == DType::kBFloat16 ? kAmxModelAttention : kAvx512Attention;
  }
  CHECK(false);
  return kScalarAttention;
}

void CheckAttention(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  CHECK(call.mask != nullptr);
  CHECK(q.rank() == 3 && k.rank() == 3 && v.rank() == 3);
  CHECK(q.dtype() == DType::kFloat32 || q.dtype() == DType::kBFloat16);
  CHECK(k.dtype() == q.dtype() && v.dtype() == q.dtype());
  CHECK(k.dim(0) == v.dim(0) && k.dim(1) == v.dim(1) && q.dim(2) == k.dim(2));
  CHECK(static_cast<int64_t>(call.kv_of.size()) == q.dim(1));
  const auto rows = [](std::span<const Range> spans) {
    int64_t sum = 0;
    for (const Range& span : spans) sum += span.size();
    return sum;
  };
  CHECK(rows(call.query_spans) == q.dim(0) && rows(call.key_spans) == k.dim(0));
}

void AttentionDelta(Tensor out, Tensor dout, Tensor delta, CpuTarget target, int num_threads) {
  const AttentionKernels& kernels = AttentionKernelsFor(target, out.dtype());
  const int64_t width = out.dim(2);
  const bool is_bf16 = out.dtype() == DType::kBFloat16;
  ParallelBlocks(num_threads, out.dim(0), 64, [&](int64_t begin, int64_t end) {
    const Tensor o = out.Rows(begin, end), d = dout.Rows(begin, end);
    kernels.delta(o.raw(), d.raw(), is_bf16, (end - begin) * out.dim(1), width,
                  delta.data<float>() + begin * out.dim(1));
  });
}

}  // namespace longspan::cpu
