// Packing for matrix products on tiles, and the products. Compiled once for each kind of tiles, which are
// included first; see matmul_tile_kernels.h.
//
// The fastest a core can load is 4 KiB of tiles in the time of the four products that they feed, and only
// from L1. So a panel of B (≤ 32 KiB) stays there while the panels of A stream past it from L2, and what
// comes next is fetched into L2 meanwhile, a few lines a step. Stores of finished units, which would hold up
// the products, are also spread: a unit is written to memory during the products of the next.
#pragma once

#include "backend/cpu/matmul_tile_kernels.h"
#include "backend/cpu/words_avx512.h"

namespace longspan::cpu {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kTileNumbers = kTileBytes / 2;

LONGSPAN_INLINE int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }
// The first n of 32 bits; n may be any number.
LONGSPAN_INLINE __mmask32 FirstBits(int64_t n) { return n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1; }

// ------------------------------------------------------------------------------------------------ packing

LONGSPAN_INLINE void StoreTile(uint16_t* to, const Words (&rows)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + 32 * i, rows[i]);
}

// 16 rows × 32 k of an operand whose k is contiguous: as a tile of A they are copied, as one of B transposed.
template <bool kIsB>
LONGSPAN_INLINE void PackRows(const uint16_t* from, int64_t stride, int64_t rows, __mmask32 depth,
                              uint16_t* tile) {
  // Numbers, fetched into L2: in L1 rows a power of two apart would push each other out.
  constexpr int64_t kAhead = 8 * 32;
  Words r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const uint16_t* row = from + i * stride;
    if (i < rows) _mm_prefetch(row + kAhead, _MM_HINT_T1);
    r[i] = i < rows ? _mm512_maskz_loadu_epi16(depth, row) : _mm512_setzero_si512();
  }
  if constexpr (kIsB) TransposeWords(r);
  StoreTile(tile, r);
}

// 32 k × 32 rows of an operand whose rows are contiguous: pairs of neighbouring k are interleaved, which
// makes two tiles of B, or transposed two of A.
template <bool kIsB>
LONGSPAN_INLINE void PackColumns(const uint16_t* from, int64_t stride, __mmask32 rows, int64_t depth,
                                 uint16_t* tiles) {
  const auto load = [&](int i) __attribute__((always_inline)) {
    return i < depth ? _mm512_maskz_loadu_epi16(rows, from + i * stride) : _mm512_setzero_si512();
  };
  if constexpr (kIsB) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const Words even = load(2 * i), odd = load(2 * i + 1);
      _mm512_storeu_si512(tiles + 32 * i, InterleaveLow(even, odd));
      _mm512_storeu_si512(tiles + kTileNumbers + 32 * i, InterleaveHigh(even, odd));
    }
  } else {
    Words tile[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) tile[i] = InterleaveLow(load(2 * i), load(2 * i + 1));
    TransposeWords(tile);
    StoreTile(tiles, tile);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) tile[i] = InterleaveHigh(load(2 * i), load(2 * i + 1));
    TransposeWords(tile);
    StoreTile(tiles + kTileNumbers, tile);
  }
}

template <bool kIsB>
void PackPanels(const TileOperand& from, int64_t rows, int64_t depth, uint16_t* panels) {
  const int64_t num_panels = CeilDiv(rows, kUnit), steps = CeilDiv(depth, kUnit);
  if (from.k_is_contiguous) {
    for (int64_t row = 0; row < num_panels * kUnit; row += kTileRows) {
      uint16_t* to = panels + row / kUnit * steps * kStepNumbers + row % kUnit * kUnit;
      for (int64_t step = 0; step < steps; ++step)
        PackRows<kIsB>(from.data + row * from.stride + step * kUnit, from.stride, rows - row,
                       FirstBits(depth - step * kUnit), to + step * kStepNumbers);
    }
    return;
  }
  for (int64_t step = 0; step < steps; ++step)  // in the order of memory
    for (int64_t panel = 0; panel < num_panels; ++panel)
      PackColumns<kIsB>(from.data + step * kUnit * from.stride + panel * kUnit, from.stride,
                        FirstBits(rows - panel * kUnit), depth - step * kUnit,
                        panels + (panel * steps + step) * kStepNumbers);
}

// ---------------------------------------------------------------------------------------- writing results

// Ways of a unit's rows to memory. Whole lines go past the caches, two neighbours at a time, which is as the
// memory system writes them fastest; a bf16 unit has but one line a row, so every other waits for the next.
enum class Way { kHold, kStreamPair, kStream, kStoreBf16, kStore, kAdd };

struct Finished {
  Way way;
  const float* sums;  // of the unit's next row
  char* to;           // its place
  int64_t stride;     // bytes
  const char* held;   // kStreamPair: the line before it
  int rows;           // left to write
  __mmask32 columns;
};

LONGSPAN_INLINE void WriteRow(Finished& unit) {
  const __m512 low = _mm512_load_ps(unit.sums), high = _mm512_load_ps(unit.sums + 16);
  const auto low_columns = static_cast<__mmask16>(unit.columns),
             high_columns = static_cast<__mmask16>(unit.columns >> 16);
  float* const to = reinterpret_cast<float*>(unit.to);
  switch (unit.way) {
    case Way::kHold:
      _mm512_store_si512(unit.to, RoundToPairs(low, high));
      break;
    case Way::kStreamPair:
      _mm512_stream_si512(reinterpret_cast<Words*>(unit.to) - 1, _mm512_load_si512(unit.held));
      _mm512_stream_si512(reinterpret_cast<Words*>(unit.to), RoundToPairs(low, high));
      unit.held += kLineBytes;
      break;
    case Way::kStream:
      _mm512_stream_ps(to, low);
      _mm512_stream_ps(to + 16, high);
      break;
    case Way::kStoreBf16:
      _mm512_mask_storeu_epi16(unit.to, unit.columns, RoundToPairs(low, high));
      break;
    case Way::kStore:
      _mm512_mask_storeu_ps(to, low_columns, low);
      _mm512_mask_storeu_ps(to + 16, high_columns, high);
      break;
    case Way::kAdd:
      _mm512_mask_storeu_ps(to, low_columns, _mm512_add_ps(low, _mm512_maskz_loadu_ps(low_columns, to)));
      _mm512_mask_storeu_ps(to + 16, high_columns,
                            _mm512_add_ps(high, _mm512_maskz_loadu_ps(high_columns, to + 16)));
      break;
  }
  unit.to += unit.stride;
  unit.sums += kUnit;
  --unit.rows;
}

// --------------------------------------------------------------------------------------------- the product

constexpr int64_t kSumsStride = kUnit * 4;          // bytes; the sums of a unit are a matrix (32, 32)
constexpr int64_t kLowerTiles = kTileRows * kUnit;  // where its rows 16 … 31 are
constexpr int64_t kRightTiles = kTileRowBytes / 4;  // and its columns 16 … 31

// Into L1, for writing. (Compilers make another instruction of __builtin_prefetch unless told of -mprfchw.)
LONGSPAN_INLINE void PrefetchToWrite(const char* p) { __asm__ volatile("prefetchw %0" ::"m"(*p)); }

// Lines to fetch during a unit's products, so many a step.
struct Ahead {
  const char *a = nullptr, *b = nullptr, *sums = nullptr;  // A and B into L2; the next unit's sums into L1
  int a_lines = 0, b_lines = 0, sums_lines = 0;
  char* c = nullptr;  // rows of two lines that will be added to
  int64_t c_stride = 0;
  int c_rows = 0, c_rows_left = 0;
};

// sums = a · b over the steps of two panels, + `start` unless it is null. Meanwhile `finished` is written.
LONGSPAN_INLINE void MultiplyUnit(const uint16_t* a, const uint16_t* b, int64_t steps, const float* start,
                                  float* sums, Ahead ahead, Finished& finished) {
  if (start == nullptr) {
    TileZero<0>();
    TileZero<1>();
    TileZero<2>();
    TileZero<3>();
  } else {
    TileLoad<0>(start, kSumsStride);
    TileLoad<1>(start + kRightTiles, kSumsStride);
    TileLoad<2>(start + kLowerTiles, kSumsStride);
    TileLoad<3>(start + kLowerTiles + kRightTiles, kSumsStride);
  }
  const int rows_a_step = finished.rows > 0 ? static_cast<int>(CeilDiv(kUnit, steps)) : 0;
  for (int64_t step = 0; step < steps; ++step) {
    TileLoad<6>(b, kTileRowBytes);
    TileStream<4>(a, kTileRowBytes);  // past L1, where B is to stay
    TileDot<0, 4, 6>();
    TileLoad<7>(b + kTileNumbers, kTileRowBytes);
    TileDot<1, 4, 7>();
    for (int i = 0; i < ahead.a_lines; ++i, ahead.a += kLineBytes) _mm_prefetch(ahead.a, _MM_HINT_T1);
    TileStream<5>(a + kTileNumbers, kTileRowBytes);
    TileDot<2, 5, 6>();
    TileDot<3, 5, 7>();
    for (int i = 0; i < ahead.b_lines; ++i, ahead.b += kLineBytes) _mm_prefetch(ahead.b, _MM_HINT_T1);
    for (int i = 0; i < ahead.sums_lines; ++i, ahead.sums += kLineBytes)
      _mm_prefetch(ahead.sums, _MM_HINT_T0);
    for (int i = 0; i < ahead.c_rows && ahead.c_rows_left > 0; ++i, --ahead.c_rows_left) {
      PrefetchToWrite(ahead.c);
      PrefetchToWrite(ahead.c + kLineBytes);
      ahead.c += ahead.c_stride;
    }
    for (int i = 0; i < rows_a_step && finished.rows > 0; ++i) WriteRow(finished);
    a += kStepNumbers;
    b += kStepNumbers;
  }
  TileStore<0>(sums, kSumsStride);
  TileStore<1>(sums + kRightTiles, kSumsStride);
  TileStore<2>(sums + kLowerTiles, kSumsStride);
  TileStore<3>(sums + kLowerTiles + kRightTiles, kSumsStride);
}

// The unit (panel i of A, j of B), whose sums these are, on its way to c or, if the next one of its rows has
// the other half of two lines, to `held`.
LONGSPAN_INLINE Finished Finish(const TileBlock& block, int64_t i, int64_t j, const float* sums, char* held) {
  const int64_t bytes = block.c_is_bf16 ? 2 : 4;
  const bool is_aligned =
      (reinterpret_cast<uintptr_t>(block.c) | static_cast<uint64_t>(block.c_stride)) % (2 * kLineBytes) == 0;
  Finished unit{.way = block.accumulate  ? Way::kAdd
                       : block.c_is_bf16 ? Way::kStoreBf16
                                         : Way::kStore,
                .sums = sums,
                .to = static_cast<char*>(block.c) + i * kUnit * block.c_stride + j * kUnit * bytes,
                .stride = block.c_stride,
                .held = held,
                .rows = static_cast<int>(block.rows - i * kUnit < kUnit ? block.rows - i * kUnit : kUnit),
                .columns = FirstBits(block.columns - j * kUnit)};
  if (block.accumulate || !is_aligned) return unit;
  // Now rows are whole pairs of lines, and the block's part of them as well.
  if (!block.c_is_bf16) {
    unit.way = Way::kStream;
  } else if (j % 2 == 0) {
    unit.way = Way::kHold;
    unit.to = held;
    unit.stride = kLineBytes;
  } else {
    unit.way = Way::kStreamPair;
  }
  return unit;
}

void Multiply(const TileBlock& block) {
  const TilesInUse tiles;
  float* const finished_sums[2] = {reinterpret_cast<float*>(block.scratch),
                                   reinterpret_cast<float*>(block.scratch) + kUnitFloats};
  char* const held = block.scratch + 2 * kUnitFloats * 4;
  const int64_t panel = block.steps * kStepNumbers;
  Finished finished{};  // nothing yet
  for (int64_t j = 0; j < block.b_panels; ++j) {
    const uint16_t* next_b = j + 1 < block.b_panels ? block.b + (j + 1) * panel : block.next_b;
    for (int64_t i = 0; i < block.a_panels; ++i) {
      // Each unit of A's panel i fetches its part of the next such panel; likewise for B.
      Ahead ahead;
      if (block.next_a != nullptr) {
        ahead.a_lines = static_cast<int>(CeilDiv(kStepNumbers * 2 / kLineBytes, block.b_panels));
        ahead.a = reinterpret_cast<const char*>(block.next_a + i * panel) +
                  j * block.steps * ahead.a_lines * kLineBytes;
      }
      if (next_b != nullptr) {
        ahead.b_lines = static_cast<int>(CeilDiv(kStepNumbers * 2 / kLineBytes, block.a_panels));
        ahead.b = reinterpret_cast<const char*>(next_b) + i * block.steps * ahead.b_lines * kLineBytes;
      }
      float* const sums = block.sums + (j * block.a_panels + i) * kUnitFloats;
      if (!block.is_first) {
        ahead.sums_lines = static_cast<int>(CeilDiv(kUnitFloats * 4 / kLineBytes, block.steps));
        ahead.sums = reinterpret_cast<const char*>(sums + kUnitFloats);
      }
      float* const to = block.is_last ? finished_sums[(j * block.a_panels + i) % 2] : sums;
      const Finished unit =
          block.is_last ? Finish(block, i, j, to, held + i * kUnit * kLineBytes) : Finished{};
      if (block.accumulate) {
        ahead.c = unit.to;
        ahead.c_stride = unit.stride;
        ahead.c_rows = static_cast<int>(CeilDiv(kUnit, block.steps));
        ahead.c_rows_left = unit.rows;
      }
      MultiplyUnit(block.a + i * panel, block.b + j * panel, block.steps, block.is_first ? nullptr : sums, to,
                   ahead, finished);
      finished = unit;
    }
  }
  while (finished.rows > 0) WriteRow(finished);
  _mm_sfence();
}

}  // namespace
}  // namespace longspan::cpu
