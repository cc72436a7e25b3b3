#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/peak.h"

namespace longspan::cpu {
namespace {

// Linux, Documentation/arch/x86/xstate.rst.
constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA

struct alignas(64) TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// Eight tiles of 16 rows × 64 bytes: sums in 0 … 3, operands in 4 … 7.
void Run(int64_t iterations) {
  TileConfig config = {};
  config.palette = 1;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  // Ordinary numbers of both signs in every operand: bf16 ±1.1 …
  alignas(64) uint16_t operand[4][512];
  uint32_t state = 1;
  for (uint16_t* x = operand[0]; x != operand[0] + 4 * 512; ++x) {
    state = state * 1664525u + 1013904223u;
    *x = static_cast<uint16_t>(0x3f00u | ((state >> 16) & 0x80ffu));
  }
  __asm__ volatile("" ::: "memory");  // g++ 12 believes that only 8 bytes of the configuration are read
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, operand[0], 64);
  _tile_loadd(5, operand[1], 64);
  _tile_loadd(6, operand[2], 64);
  _tile_loadd(7, operand[3], 64);
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

}  // namespace

bool RequestAmxPermission() { return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0; }

const PeakUnit kAmxPeak = {"amx bf16", int64_t{4} * 2 * 16 * 16 * 32, Run};

}  // namespace longspan::cpu
