// Matrix products on the model of tiles. The tiles come first.
// clang-format off
#include "backend/cpu/tile_model.h"
#include "backend/cpu/matmul_tile_impl.h"
// clang-format on

namespace longspan::cpu {

const TileKernels kAmxModelMatmul = {PackPanels<false>, PackPanels<true>, Multiply};

}  // namespace longspan::cpu
