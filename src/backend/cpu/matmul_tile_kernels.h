// What a CPU with tiles (tile.h) does for matrix products of bf16: packs operands, and multiplies packed
// blocks. What is packed when, which blocks there are and on which thread is the driver's (matmul_tiles.cc).
//
// C is cut into units of 32 × 32, k into *steps* of 32. A step of a unit takes two tiles of A, 16 rows × 32 k
// each, and two of B, 16 pairs of k × 16 columns. Operands are packed in *panels*: 32 rows of A, or columns
// of B, over some steps, [step][2 tiles of 1 KiB], so that all loads are of consecutive memory. A tile of A
// and one of B of the same numbers are each other's transposes in 32-bit words of two k.
#pragma once

#include <cstdint>

namespace longspan::cpu {

inline constexpr int64_t kUnit = 32;
inline constexpr int64_t kStepNumbers = kUnit * kUnit;  // bf16 of a panel's step, 2 KiB
inline constexpr int64_t kUnitFloats = kUnit * kUnit;   // f32 sums of a unit, 4 KiB: four tiles

// bf16 (rows, k), where rows are those of A or the columns of B: number (r, i) is data[r · stride + i], or
// data[i · stride + r].
struct TileOperand {
  const uint16_t* data = nullptr;
  int64_t stride = 0;
  bool k_is_contiguous = true;
};

// A block of C, over one block of k.
struct TileBlock {
  const uint16_t *a = nullptr, *b = nullptr;  // [panel][step]
  int64_t a_panels = 0, b_panels = 0, steps = 0;
  // What will be read next, panels like a's and the first of b's, if they lie outside the L2 cache; or null.
  const uint16_t *next_a = nullptr, *next_b = nullptr;
  // Sums from one block of k to the next, [b panel][a panel][kUnitFloats]: read unless `is_first`, written
  // unless `is_last`, which writes c instead.
  float* sums = nullptr;
  bool is_first = true, is_last = true;
  void* c = nullptr;     // (rows, columns), at most as many as the panels have
  int64_t c_stride = 0;  // bytes: the length of C's rows. Blocks end with them, or at pairs of units
  int64_t rows = 0, columns = 0;
  bool c_is_bf16 = false, accumulate = false;
  char* scratch = nullptr;  // TileScratchBytes(a_panels)
};
// Two finished units, and bf16 halves of 128 bytes that wait for the other half.
inline constexpr int64_t TileScratchBytes(int64_t a_panels) {
  return 4 * (2 * kUnitFloats) + 2 * a_panels * kUnitFloats;
}

struct TileKernels {
  // Panels over all of `depth`, one after the other, zeros where rows or depth end within a unit.
  void (*pack_a)(const TileOperand& from, int64_t rows, int64_t depth, uint16_t* panels);
  void (*pack_b)(const TileOperand& from, int64_t rows, int64_t depth, uint16_t* panels);
  void (*multiply)(const TileBlock& block);
};

// One for each file that compiles matmul_tile_impl.h.
extern const TileKernels kAmxMatmul, kAmxModelMatmul;

}  // namespace longspan::cpu
