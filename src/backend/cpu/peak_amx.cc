#include "backend/cpu/peak.h"
#include "backend/cpu/tile_amx.h"

namespace longspan::cpu {
namespace {

// Sums in tiles 0 … 3, operands in 4 … 7.
void Run(int64_t iterations) {
  // Ordinary numbers of both signs in every operand: bf16 ±1.1 …
  alignas(64) uint16_t operand[4][kTileBytes / 2];
  uint32_t state = 1;
  for (uint16_t* x = operand[0]; x != operand[0] + 4 * kTileBytes / 2; ++x) {
    state = state * 1664525u + 1013904223u;
    *x = static_cast<uint16_t>(0x3f00u | ((state >> 16) & 0x80ffu));
  }
  const TilesInUse in_use;  // sums are zero
  TileLoad<4>(operand[0], kTileRowBytes);
  TileLoad<5>(operand[1], kTileRowBytes);
  TileLoad<6>(operand[2], kTileRowBytes);
  TileLoad<7>(operand[3], kTileRowBytes);
  for (int64_t n = 0; n < iterations; ++n) {
    TileDot<0, 4, 6>();
    TileDot<1, 4, 7>();
    TileDot<2, 5, 6>();
    TileDot<3, 5, 7>();
  }
}

}  // namespace

const PeakUnit kAmxPeak = {"amx bf16", int64_t{4} * 2 * 16 * 16 * 32, Run};

}  // namespace longspan::cpu
