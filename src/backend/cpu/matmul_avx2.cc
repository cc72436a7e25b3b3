// The target's vectors come first.
// clang-format off
#include "backend/cpu/vector_avx2.h"
#include "backend/cpu/matmul_vector_impl.h"
// clang-format on

namespace longspan::cpu {

const VectorKernels kAvx2Matmul = kMatmul;

}  // namespace longspan::cpu
