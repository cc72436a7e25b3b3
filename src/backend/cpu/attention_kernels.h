// What a CPU target does for attention: one query block against one key block, for one head. Which blocks
// meet, under which mask, on which thread and in which order is the drivers' (attention_forward.cc,
// attention_backward.cc); how operands are packed, and what lies where in the scratch memory, is the
// target's.
//
// Tiles are strips of query rows, as many as the target likes, × panels of 64 keys. All pointers of one head:
// row r begins r · stride elements on.
#pragma once

#include <cstdint>

#include "backend/cpu/cpu_features.h"
#include "core/tensor.h"

namespace longspan::cpu {

inline constexpr int kPanelKeys = 64;

// What meets in one call, at most: rows of a query block, in strips, and panels of a key block.
struct BlockSize {
  int rows, panels;
  int strip_rows;  // divides rows
};
// Of any target: rows, strips and panels of a block; strips times panels; rows times panels.
inline constexpr int kMostRows = 512, kMostStrips = 64, kMostPanels = 16;
inline constexpr int kMostTiles = 32 * kMostPanels, kMostTileRows = kMostRows * kMostPanels;

// Rows of one head of a (rows, heads, width) tensor; f32, or bf16 as its bits.
struct ConstRows {
  const void* data = nullptr;
  int64_t stride = 0;
  bool is_bf16 = false;
};
struct FloatRows {
  float* data = nullptr;
  int64_t stride = 0;
};

// Consecutive keys: count ≤ 64 of them from global index `first`, in rows [row, row + count) of k and v.
struct KeyPanel {
  int64_t first = 0, row = 0;
  int32_t count = 0;
};

// Which keys of a panel the rows of a strip see. Rows past the block's end count as its last one; keys past
// the panel's end are seen by nobody.
struct TileMask {
  uint64_t any = 0;                // bit j: some row sees key j; 0: the tile is empty
  const uint64_t* rows = nullptr;  // [strip_rows] of the same by row; null: the tile is full
};

struct QueryBlock {
  int num_rows = 0;               // ≤ BlockSize::rows
  const int64_t* rows = nullptr;  // of q, in increasing global order
};

// A head's part of AttentionForward (backend/backend.h).
struct ForwardHead {
  int64_t width = 0, value_width = 0;  // D, E
  float scale = 1, soft_cap = 0;
  bool first = true, last = true;
  bool has_sink = false;  // then `sink` joins each row that sees a key, at the end of the last block
  float sink = 0;
  ConstRows q;
  FloatRows state_out, state_max, state_sum;
  void* out = nullptr;  // rows as q's stride says for width E
  int64_t out_stride = 0;
  bool out_is_bf16 = false;
  FloatRows lse;
};

// A head's part of AttentionBackward.
struct BackwardHead {
  int64_t width = 0, value_width = 0;  // D, E
  float scale = 1, soft_cap = 0;
  const float* key_mean = nullptr;  // (D), or null: subtracted from the keys in the product for dq alone
  ConstRows q, k, v, dout;
  FloatRows lse, delta, dq, dk, dv;
};

struct AttentionKernels {
  BlockSize forward_block, backward_block;

  // Forward. Packed keys and values of a panel, and a thread's scratch memory: numbers of floats, multiples
  // of 16.
  int64_t (*panel_floats)(int64_t width, int64_t value_width);
  int64_t (*forward_scratch_floats)(int64_t width, int64_t value_width);
  void (*pack_panel)(const ConstRows& k, const ConstRows& v, int64_t width, int64_t value_width,
                     const KeyPanel& keys, float* panel);
  // Loads queries and state; then any number of key blocks: num_panels packed panels in a row, tiles
  // [strip][panel]; then stores the state, or out and lse.
  void (*forward_begin)(const ForwardHead& head, const QueryBlock& queries, float* scratch);
  void (*forward_keys)(const ForwardHead& head, const QueryBlock& queries, const float* panels,
                       int num_panels, const TileMask* tiles, float* scratch);
  void (*forward_end)(const ForwardHead& head, const QueryBlock& queries, float* scratch);

  // Backward. Packs a key block and zeroes its gradients; then for any number of query blocks, of any heads
  // that share these keys: their part of dk and dv, then dq += (separately, for its order is the driver's);
  // then dk, dv +=.
  int64_t (*backward_scratch_floats)(int64_t width, int64_t value_width);
  void (*backward_begin)(const BackwardHead& head, const KeyPanel* keys, int num_panels, float* scratch);
  void (*backward_queries)(const BackwardHead& head, const QueryBlock& queries, int num_panels,
                           const TileMask* tiles, float* scratch);
  void (*backward_dq)(const BackwardHead& head, const QueryBlock& queries, int num_panels,
                      const TileMask* tiles, float* scratch);
  void (*backward_end)(const BackwardHead& head, const KeyPanel* keys, int num_panels, float* scratch);

  // delta[r] = Σ out[r] ∘ dout[r] for contiguous rows.
  void (*delta)(const void* out, const void* dout, bool is_bf16, int64_t rows, int64_t value_width,
                float* delta);
};

// The kernels for queries, keys and values of this dtype.
const AttentionKernels& AttentionKernelsFor(CpuTarget target, DType dtype);

// One for each file that compiles attention_impl.h: any dtype, all products in f32.
extern const AttentionKernels kScalarAttention, kAvx2Attention, kAvx512Attention;
// bf16 alone, multiplied in pairs (attention_pairs_impl.h).
extern const AttentionKernels kAvx512Bf16Attention;
// bf16 alone, multiplied in tiles (attention_amx_impl.h).
extern const AttentionKernels kAmxAttention, kAmxModelAttention;

}  // namespace longspan::cpu
