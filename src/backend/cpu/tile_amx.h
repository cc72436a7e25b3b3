// Tiles on Intel AMX. See tile.h. The process must have been granted the tile registers (cpu_features.h).
//
// Inline assembly, as the intrinsics want literal tile numbers and g++ 12 believes that a configuration is 8
// bytes long. What touches memory says so by a clobber: the compiler keeps the order in which a kernel is
// written, which for these kernels is the one that was measured.
#pragma once

#include "backend/cpu/tile.h"

namespace longspan::cpu {
namespace {

class TilesInUse {
 public:
  TilesInUse() {
    Config config = {};
    config.palette = 1;
    for (int i = 0; i < 8; ++i) {
      config.row_bytes[i] = kTileRowBytes;
      config.rows[i] = kTileRows;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
  }
  ~TilesInUse() { __asm__ volatile("tilerelease" ::); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;

 private:
  struct alignas(64) Config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  static_assert(sizeof(Config) == 64);
};

template <int kTile>
LONGSPAN_INLINE void TileZero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

template <int kTile>
LONGSPAN_INLINE void TileLoad(const void* p, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
LONGSPAN_INLINE void TileStream(const void* p, int64_t stride) {
  __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
LONGSPAN_INLINE void TileStore(void* p, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
}

template <int kC, int kA, int kB>
LONGSPAN_INLINE void TileDot() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

}  // namespace
}  // namespace longspan::cpu
