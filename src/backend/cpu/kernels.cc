#include "backend/cpu/kernels.h"

namespace longspan::cpu {

const Kernels& KernelsFor(CpuTarget target) {
  switch (target) {
    case CpuTarget::kScalar:
      return kScalarKernels;
    case CpuTarget::kAvx2:
      return kAvx2Kernels;
    case CpuTarget::kAvx512:
    case CpuTarget::kAvx512Bf16:
    case CpuTarget::kAmx:
    case CpuTarget::kAmxModel:
      return kAvx512Kernels;
  }
  CHECK(false);
  return kScalarKernels;
}

}  // namespace longspan::cpu
