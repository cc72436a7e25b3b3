// Tiles in plain C++. See tile.h.
#pragma once

#include "backend/cpu/tile.h"

namespace longspan::cpu {
namespace {

struct alignas(64) ModelTile {
  uint32_t words[kTileRows][kTileRowBytes / 4];
};
thread_local ModelTile model_tiles[8];

class TilesInUse {
 public:
  TilesInUse() { __builtin_memset(model_tiles, 0, sizeof(model_tiles)); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

template <int kTile>
LONGSPAN_INLINE void TileZero() {
  __builtin_memset(&model_tiles[kTile], 0, kTileBytes);
}

template <int kTile>
LONGSPAN_INLINE void TileLoad(const void* p, int64_t stride) {
  for (int r = 0; r < kTileRows; ++r)
    __builtin_memcpy(model_tiles[kTile].words[r], static_cast<const char*>(p) + r * stride, kTileRowBytes);
}

template <int kTile>
LONGSPAN_INLINE void TileStream(const void* p, int64_t stride) {
  TileLoad<kTile>(p, stride);
}

template <int kTile>
LONGSPAN_INLINE void TileStore(void* p, int64_t stride) {
  for (int r = 0; r < kTileRows; ++r)
    __builtin_memcpy(static_cast<char*>(p) + r * stride, model_tiles[kTile].words[r], kTileRowBytes);
}

// The two bf16 of a word, each exactly an f32.
LONGSPAN_INLINE float LowHalf(uint32_t word) { return __builtin_bit_cast(float, word << 16); }
LONGSPAN_INLINE float HighHalf(uint32_t word) { return __builtin_bit_cast(float, word & 0xffff0000u); }

// c += a · b. Plain loops of 16, one for each column, which compilers turn into vector instructions.
__attribute__((noinline)) inline void MultiplyTiles(ModelTile& c, const ModelTile& a, const ModelTile& b) {
  constexpr int kColumns = 16, kPairs = 16;
  const FlushDenormals flush;
  alignas(64) float even_b[kPairs][kColumns], odd_b[kPairs][kColumns];
  for (int i = 0; i < kPairs; ++i)
    for (int n = 0; n < kColumns; ++n) {
      even_b[i][n] = LowHalf(b.words[i][n]);
      odd_b[i][n] = HighHalf(b.words[i][n]);
    }
  for (int m = 0; m < kTileRows; ++m) {
    alignas(64) float even[kColumns] = {}, odd[kColumns] = {};
    for (int i = 0; i < kPairs; ++i) {
      const float even_a = LowHalf(a.words[m][i]), odd_a = HighHalf(a.words[m][i]);
      for (int n = 0; n < kColumns; ++n) even[n] = __builtin_fmaf(even_a, even_b[i][n], even[n]);
      for (int n = 0; n < kColumns; ++n) odd[n] = __builtin_fmaf(odd_a, odd_b[i][n], odd[n]);
    }
    for (int n = 0; n < kColumns; ++n) {
      const float sum = (even[n] + odd[n]) + __builtin_bit_cast(float, c.words[m][n]);
      c.words[m][n] = __builtin_bit_cast(uint32_t, sum);
    }
  }
}

template <int kC, int kA, int kB>
LONGSPAN_INLINE void TileDot() {
  MultiplyTiles(model_tiles[kC], model_tiles[kA], model_tiles[kB]);
}

}  // namespace
}  // namespace longspan::cpu
