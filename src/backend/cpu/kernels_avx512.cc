#include "backend/cpu/kernels_impl.h"

namespace longspan::cpu {

const Kernels kAvx512Kernels = kTable;

}  // namespace longspan::cpu
