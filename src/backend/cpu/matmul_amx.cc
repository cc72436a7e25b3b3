// Matrix products on Intel AMX. The tiles come first.
// clang-format off
#include "backend/cpu/tile_amx.h"
#include "backend/cpu/matmul_tile_impl.h"
// clang-format on

namespace longspan::cpu {

const TileKernels kAmxMatmul = {PackPanels<false>, PackPanels<true>, Multiply};

}  // namespace longspan::cpu
