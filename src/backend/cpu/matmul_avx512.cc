// The target's vectors come first.
// clang-format off
#include "backend/cpu/vector_avx512.h"
#include "backend/cpu/matmul_vector_impl.h"
// clang-format on

namespace longspan::cpu {

const VectorKernels kAvx512Matmul = kMatmul;

}  // namespace longspan::cpu
