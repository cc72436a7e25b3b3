#include "backend/cpu/peak.h"
#include "backend/cpu/tile_amx.h"

namespace longspan::cpu {
namespace {

constexpr int64_t kTileWords = kTileBytes / 4;
static_assert(4 * kTileWords == kPeakOperandWords);

// Sums in tiles 0 … 3, operands in 4 … 7.
void Run(int64_t iterations, const uint32_t* operands) {
  const TilesInUse in_use;  // sums are zero
  TileLoad<4>(operands, kTileRowBytes);
  TileLoad<5>(operands + kTileWords, kTileRowBytes);
  TileLoad<6>(operands + 2 * kTileWords, kTileRowBytes);
  TileLoad<7>(operands + 3 * kTileWords, kTileRowBytes);
  for (int64_t n = 0; n < iterations; ++n) {
    TileDot<0, 4, 6>();
    TileDot<1, 4, 7>();
    TileDot<2, 5, 6>();
    TileDot<3, 5, 7>();
  }
}

}  // namespace

const PeakUnit kAmxPeak = {"amx bf16", int64_t{4} * 2 * 16 * 16 * 32, true, Run};

}  // namespace longspan::cpu
