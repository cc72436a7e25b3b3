#include "backend/cpu/kernels_impl.h"

namespace longspan::cpu {

const Kernels kScalarKernels = kTable;

}  // namespace longspan::cpu
