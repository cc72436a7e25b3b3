// Matrix products of bf16 on tiles: what is packed when, which block is whose. The order in which a number of
// C is summed is that of k, whatever blocks and threads there are, so neither changes a bit.
//
// C is cut into *strips* of rows and each strip into blocks of columns that fit the L2 cache with what a
// block of k needs of A and B. Threads take contiguous shares of all (strip, pair of columns' panels), strip
// by strip. B is packed first, by all threads, unless it comes packed; A by each thread as it comes to a
// strip, so that it is still in the cache, or first as well where threads share strips.
//
// No sum is restarted: the tiles add 32 products at a time, so the sums over a million k are as exact as
// plain ones over 32,768.
#include <algorithm>

#include "backend/cpu/matmul.h"
#include "backend/cpu/matmul_tile_kernels.h"
#include "backend/cpu/parallel.h"
#include "backend/shapes.h"

namespace longspan::cpu {
namespace {

constexpr int64_t kPair = 2 * kUnit;              // columns; whole pairs of cache lines
constexpr int64_t kUnitBytes = kStepNumbers * 2;  // of a panel's step
constexpr int64_t kMostSteps = 512 / kUnit;       // of a block of k: a panel is at most the L1 cache
constexpr int64_t kGroup = 8;                     // panels that are packed together

int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }
int64_t UnitsOf(int64_t n) { return CeilDiv(n, kUnit); }

// k in blocks of equal size, in steps; the last one may be shorter. A packed operand is
// [block][panel][step of the block][2 KiB]: panels that are used together lie together, or those a power of
// two apart would compete for the same lines of the cache.
struct Depth {
  explicit Depth(int64_t size)
      : k(size), steps(UnitsOf(size)), block_steps(CeilDiv(steps, CeilDiv(steps, kMostSteps))) {}

  int64_t num_blocks() const { return CeilDiv(steps, block_steps); }
  int64_t StepsOf(int64_t block) const { return std::min(block_steps, steps - block * block_steps); }
  // Numbers before panel `panel` of a block, of `panels` panels.
  int64_t Offset(int64_t block, int64_t panel, int64_t panels) const {
    return (block * block_steps * panels + StepsOf(block) * panel) * kStepNumbers;
  }

  int64_t k, steps, block_steps;
};

int64_t PackedBytes(int64_t rows, int64_t k) { return UnitsOf(rows) * UnitsOf(k) * kUnitBytes; }

TileOperand Part(TileOperand operand, int64_t row, int64_t k) {
  operand.data += operand.k_is_contiguous ? row * operand.stride + k : k * operand.stride + row;
  return operand;
}

uint16_t* Numbers(const Tensor& x) { return reinterpret_cast<uint16_t*>(x.data<BFloat16>()); }

// Rows of op(a), columns of op(b).
TileOperand OperandA(const Tensor& a, bool transposed) { return {Numbers(a), a.dim(1), !transposed}; }
TileOperand OperandB(const Tensor& b, bool transposed) { return {Numbers(b), b.dim(1), transposed}; }

void PackAll(void (*pack)(const TileOperand&, int64_t, int64_t, uint16_t*), int num_threads,
             const TileOperand& from, int64_t rows, const Depth& depth, uint16_t* to) {
  const int64_t panels = UnitsOf(rows), groups = CeilDiv(panels, kGroup);
  ParallelFor(num_threads, depth.num_blocks() * groups, [&](int64_t i) {
    const int64_t block = i / groups, panel = i % groups * kGroup, k = block * depth.block_steps * kUnit;
    pack(Part(from, panel * kUnit, k), std::min(rows - panel * kUnit, kGroup * kUnit),
         std::min(depth.k - k, depth.block_steps * kUnit), to + depth.Offset(block, panel, panels));
  });
}

// How a product is cut, and where its workspace goes.
struct Plan {
  Plan(const MatmulArgs& args, int num_threads_in)
      : sizes(shapes::CheckMatmul(args)), depth(sizes.k), num_threads(num_threads_in) {
    const auto [m, n, k] = sizes;
    const int64_t most_rows = k > 1024 && n <= 1024 ? 256 : 384;
    block_columns = std::min<int64_t>(k <= 1024 ? 64 : n <= 1024 ? 768 : 512, CeilDiv(n, kPair) * kPair);
    strip_rows = UnitsOf(CeilDiv(m, CeilDiv(m, most_rows))) * kUnit;
    num_strips = CeilDiv(m, strip_rows);
    packs_a_first = num_strips < num_threads;
    uses_a_once = n <= block_columns;
    b_bytes = args.packed_b.IsNull() ? PackedBytes(n, k) : 0;
    a_bytes = packs_a_first ? PackedBytes(m, k) : 0;
    const int64_t panels = strip_rows / kUnit;
    if (!packs_a_first) strip_bytes = panels * (uses_a_once ? depth.block_steps : depth.steps) * kUnitBytes;
    sums_bytes = depth.num_blocks() > 1 ? panels * (block_columns / kUnit) * kUnitFloats * 4 : 0;
    thread_bytes = strip_bytes + sums_bytes + TileScratchBytes(panels);
  }
  int64_t bytes() const { return b_bytes + a_bytes + num_threads * thread_bytes; }

  shapes::MatmulSizes sizes;
  Depth depth;
  int num_threads;
  int64_t strip_rows, num_strips, block_columns;
  bool packs_a_first;  // all of A, else each thread its strips
  bool uses_a_once;    // a strip's blocks of k can share their place
  int64_t b_bytes, a_bytes, strip_bytes = 0, sums_bytes, thread_bytes;
};

// One product.
class TileProduct {
 public:
  TileProduct(const TileKernels& kernels, int num_threads, const MatmulArgs& args, Tensor workspace)
      : kernels_(kernels),
        args_(args),
        plan_(args, num_threads),
        a_(OperandA(args.a, args.transpose_a)),
        all_b_(static_cast<uint16_t*>(workspace.raw())),
        all_a_(all_b_ + plan_.b_bytes / 2),
        scratch_(static_cast<char*>(workspace.raw()) + plan_.b_bytes + plan_.a_bytes) {}

  void Run() {
    const auto [m, n, k] = plan_.sizes;
    if (plan_.b_bytes > 0) {
      PackAll(kernels_.pack_b, plan_.num_threads, OperandB(args_.b, args_.transpose_b), n, plan_.depth,
              all_b_);
    } else {  // the form for transposed b comes first
      all_b_ = static_cast<uint16_t*>(args_.packed_b.raw()) + (args_.transpose_b ? 0 : PackedBytes(n, k) / 2);
    }
    if (plan_.packs_a_first) PackAll(kernels_.pack_a, plan_.num_threads, a_, m, plan_.depth, all_a_);
    const int64_t pairs = CeilDiv(n, kPair), all = plan_.num_strips * pairs;
    ParallelFor(plan_.num_threads, plan_.num_threads, [&](int64_t thread) {
      const int64_t end = all * (thread + 1) / plan_.num_threads;
      for (int64_t i = all * thread / plan_.num_threads; i < end;) {
        const int64_t strip = i / pairs, first = i % pairs, last = std::min(pairs, first + end - i);
        MultiplyStrip(strip, first * kPair, std::min(plan_.sizes.n, last * kPair),
                      scratch_ + thread * plan_.thread_bytes);
        i += last - first;
      }
    });
  }

 private:
  // Columns [begin, end) of a strip; begin is a multiple of kPair.
  void MultiplyStrip(int64_t strip, int64_t begin, int64_t end, char* scratch) const {
    const Depth& depth = plan_.depth;
    const int64_t row = strip * plan_.strip_rows, rows = std::min(plan_.strip_rows, plan_.sizes.m - row);
    uint16_t* const strip_a = reinterpret_cast<uint16_t*>(scratch);
    const int64_t c_bytes = SizeOf(args_.c.dtype());
    const int64_t b_panels = UnitsOf(plan_.sizes.n);

    TileBlock block;
    block.a_panels = UnitsOf(rows);
    block.sums = reinterpret_cast<float*>(scratch + plan_.strip_bytes);
    block.scratch = scratch + plan_.strip_bytes + plan_.sums_bytes;
    block.c_stride = plan_.sizes.n * c_bytes;
    block.rows = rows;
    block.c_is_bf16 = args_.c.dtype() == DType::kBFloat16;
    block.accumulate = args_.accumulate;
    const auto a_at = [&](int64_t d) -> const uint16_t* {
      if (plan_.packs_a_first) return all_a_ + depth.Offset(d, row / kUnit, UnitsOf(plan_.sizes.m));
      return strip_a + (plan_.uses_a_once ? 0 : depth.Offset(d, 0, block.a_panels));
    };
    for (int64_t column = begin; column < end; column += plan_.block_columns) {
      block.columns = std::min(plan_.block_columns, end - column);
      block.b_panels = UnitsOf(block.columns);
      block.c = static_cast<char*>(args_.c.raw()) + row * block.c_stride + column * c_bytes;
      for (int64_t d = 0; d < depth.num_blocks(); ++d) {
        const bool packs = !plan_.packs_a_first && column == begin;
        if (packs) {
          const int64_t k = d * depth.block_steps * kUnit;
          kernels_.pack_a(Part(a_, row, k), rows, std::min(depth.k - k, depth.block_steps * kUnit),
                          const_cast<uint16_t*>(a_at(d)));
        }
        block.steps = depth.StepsOf(d);
        block.is_first = d == 0;
        block.is_last = d + 1 == depth.num_blocks();
        block.a = a_at(d);
        block.b = all_b_ + depth.Offset(d, column / kUnit, b_panels);
        // After this block of k the next one or, for the next columns, the first.
        const int64_t next = block.is_last ? 0 : d + 1;
        const int64_t next_column = block.is_last ? column + plan_.block_columns : column;
        const bool is_more = next_column < end;
        block.next_b = is_more ? all_b_ + depth.Offset(next, next_column / kUnit, b_panels) : nullptr;
        block.next_a = is_more && !packs && block.b_panels > 2 ? a_at(next) : nullptr;
        kernels_.multiply(block);
      }
    }
  }

  const TileKernels& kernels_;
  const MatmulArgs& args_;
  const Plan plan_;
  const TileOperand a_;
  uint16_t *all_b_, *all_a_;
  char* scratch_;
};

const TileKernels& KernelsOf(CpuTarget target) {
  return target == CpuTarget::kAmx ? kAmxMatmul : kAmxModelMatmul;
}

}  // namespace

int64_t TileMatmulWorkspace(const MatmulArgs& args, int num_threads) {
  return Plan(args, num_threads).bytes();
}

void TileMatmul(CpuTarget target, int num_threads, const MatmulArgs& args, Tensor workspace) {
  TileProduct(KernelsOf(target), num_threads, args, workspace).Run();
}

// A weight (out, in) is B in both passes. y = x Wᵀ sums over `in`: its tiles hold pairs of neighbours in a
// row of W. dx = dy W sums over `out`: pairs of neighbours in a column. So no tile serves both, and both
// forms are kept, of equal size.
int64_t TilePackedBytes(const Tensor& matrix) { return 2 * PackedBytes(matrix.dim(0), matrix.dim(1)); }

void TilePack(CpuTarget target, int num_threads, const Tensor& matrix, Tensor packed) {
  const int64_t rows = matrix.dim(0), columns = matrix.dim(1);
  uint16_t* const to = static_cast<uint16_t*>(packed.raw());
  const auto pack = KernelsOf(target).pack_b;
  PackAll(pack, num_threads, OperandB(matrix, true), rows, Depth(columns), to);
  PackAll(pack, num_threads, OperandB(matrix, false), columns, Depth(rows),
          to + PackedBytes(rows, columns) / 2);
}

}  // namespace longspan::cpu
