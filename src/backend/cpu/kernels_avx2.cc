#include "backend/cpu/kernels_impl.h"

namespace longspan::cpu {

const Kernels kAvx2Kernels = kTable;

}  // namespace longspan::cpu
