// Tiles of 16 rows × 64 bytes, eight of them, numbered 0 … 7, and what can be done with them. A kernel source
// includes one of two headers with the same names, all of internal linkage, so that it can be compiled twice:
// - tile_amx.h: the registers and instructions of Intel AMX;
// - tile_model.h: the same in plain C++, bit for bit, for the tests of machines without them.
//
//   TilesInUse in_use;                 // alive while a thread works with tiles; all tiles are zero at first
//   TileZero<c>();
//   TileLoad<t>(p, stride);            // rows of 64 bytes from p on, stride bytes apart (0: one row for all)
//   TileStream<t>(p, stride);          // the same, for what should not push other data out of the L1 cache
//   TileStore<t>(p, stride);
//   TileDot<c, a, b>();                // c += a · b
//
// TileDot multiplies bf16 and adds f32: c is 16 × 16 f32; a is 16 rows of 32 bf16; row i of b holds for each
// of 16 columns the pair b[2i][column], b[2i + 1][column]. Even and odd i are summed apart, from 0 and in
// order, by fused multiply-adds; then even + odd; then that + c. Denormal operands and results count as zero,
// whatever the thread's modes (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
// TDPBF16PS). Loads and stores keep their place among the program's other accesses to memory.
#pragma once

#include <xmmintrin.h>

#include <cstdint>

#include "backend/cpu/inline.h"

namespace longspan::cpu {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileRowBytes = 64;
constexpr int kTileBytes = kTileRows * kTileRowBytes;

// Denormal f32 operands and results of this thread's vector instructions count as zero meanwhile, too. (They
// would cost hundreds of cycles each.)
class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) { Set(before_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushDenormals() { Set(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;  // of MXCSR
  // The compiler doesn't know that arithmetic depends on the mode; it keeps accesses to memory on their side.
  static void Set(unsigned mode) {
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(mode);
    __asm__ volatile("" ::: "memory");
  }

  unsigned before_;
};

}  // namespace
}  // namespace longspan::cpu
