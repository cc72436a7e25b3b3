// Products of tiles in one stream, with other work between them. See attention_amx_impl.h.
//
// A tile product takes the tile unit 16 cycles and the front end one instruction: there is room beside it for
// some 20 vector instructions, and it is room that nothing else fills, since tile products wait for no one
// but their operands. So products follow each other without a break: the operands of a step are loaded during
// the step before, the sums of a product are stored, and those of the next one loaded, tile by tile as their
// first step begins; and work in vectors goes into four slots a step, one after each of the four tile
// products.
#pragma once

#include "backend/cpu/attention_amx_impl.h"

namespace longspan::cpu {
namespace {

// sums = or += Σ over n ≥ 1 steps of left · right, a pair of tiles each. Tiles 0 … 3 are the sums, 4 and 5
// the left operand, 6 and 7 the right one.
struct Product {
  const uint32_t *left, *right;  // of the first step; the next are kPairWords and right_step words on
  int64_t right_step;
  float* sums;
  int n;
  bool adds;
};

// Where tile kTile of a unit of sums begins.
template <int kTile>
LONGSPAN_INLINE float* SumTile(float* sums) {
  return sums + kTile / 2 * kTileRows * kSumRow + kTile % 2 * kTileRows;
}

LONGSPAN_INLINE void LoadOperands(const uint32_t* left, const uint32_t* right) {
  TileLoad<4>(left, kTileRowBytes);
  TileLoad<5>(left + kTileWords, kTileRowBytes);
  TileStream<6>(right, kTileRowBytes);
  TileStream<7>(right + kTileWords, kTileRowBytes);
}

LONGSPAN_INLINE void StoreSums(float* sums) {
  TileStore<0>(SumTile<0>(sums), kSumRowBytes);
  TileStore<1>(SumTile<1>(sums), kSumRowBytes);
  TileStore<2>(SumTile<2>(sums), kSumRowBytes);
  TileStore<3>(SumTile<3>(sums), kSumRowBytes);
}

enum class First { kNo, kFromZero, kAdds };  // a product's first step, and how its sums begin

template <First kFirst, int kTile>
LONGSPAN_INLINE void ExchangeSums(float* before, float* sums) {
  if constexpr (kFirst != First::kNo) TileStore<kTile>(SumTile<kTile>(before), kSumRowBytes);
  if constexpr (kFirst == First::kFromZero) TileZero<kTile>();
  if constexpr (kFirst == First::kAdds) TileLoad<kTile>(SumTile<kTile>(sums), kSumRowBytes);
}

// One step, whose operands are there; loads those of the next one, from left and right.
template <First kFirst, class Work>
LONGSPAN_INLINE void Step(const uint32_t* left, const uint32_t* right, float* before, float* sums,
                          Work& work) {
  typename Work::Step step;
  ExchangeSums<kFirst, 0>(before, sums);
  TileDot<0, 4, 6>();
  work.template Slot<0>(step);
  ExchangeSums<kFirst, 1>(before, sums);
  TileDot<1, 4, 7>();
  TileLoad<4>(left, kTileRowBytes);
  work.template Slot<1>(step);
  ExchangeSums<kFirst, 2>(before, sums);
  TileDot<2, 5, 6>();
  TileStream<6>(right, kTileRowBytes);
  work.template Slot<2>(step);
  ExchangeSums<kFirst, 3>(before, sums);
  TileDot<3, 5, 7>();
  TileStream<7>(right + kTileWords, kTileRowBytes);
  TileLoad<5>(left + kTileWords, kTileRowBytes);
  work.template Slot<3>(step);
  work.EndStep();
}

// Nothing between the products.
struct NoWork {
  struct Step {};
  template <int kSlot>
  LONGSPAN_INLINE void Slot(Step&) {}
  LONGSPAN_INLINE void EndStep() {}
  LONGSPAN_INLINE bool IsDone() const { return true; }
};

// The same step with `work`, or without if that is done.
template <First kFirst, class Work>
LONGSPAN_INLINE void AnyStep(const uint32_t* left, const uint32_t* right, float* before, float* sums,
                             Work& work) {
  if (!work.IsDone() && (kFirst == First::kNo || Work::kFromFirstStep)) {
    Step<kFirst>(left, right, before, sums, work);
  } else {
    NoWork none;
    Step<kFirst>(left, right, before, sums, none);
  }
}

// All of x, whose first operands are there, up to the first operands of `next`. Its sums stay in the tiles;
// those of the product before go to `before`.
template <class Work>
LONGSPAN_INLINE void RunProduct(const Product& x, const Product& next, float* before, Work& work) {
  const uint32_t *left = x.left, *right = x.right;
  const auto advance = [&](int k) __attribute__((always_inline)) {
    left = k + 1 < x.n ? left + kPairWords : next.left;
    right = k + 1 < x.n ? right + x.right_step : next.right;
  };
  advance(0);
  if (x.adds) {
    AnyStep<First::kAdds>(left, right, before, x.sums, work);
  } else {
    AnyStep<First::kFromZero>(left, right, before, x.sums, work);
  }
  for (int k = 1; k < x.n; ++k) {
    advance(k);
    AnyStep<First::kNo>(left, right, before, x.sums, work);
  }
}

// Asks for the sums of the next product, once those of this one are there.
class PrefetchWork {
 public:
  static constexpr bool kFromFirstStep = false;
  struct Step {};
  LONGSPAN_INLINE explicit PrefetchWork(const float* sums) : line_(sums) {}
  LONGSPAN_INLINE bool IsDone() const { return false; }
  template <int kSlot>
  LONGSPAN_INLINE void Slot(Step&) {
    if constexpr (kSlot < 2) {
#pragma GCC unroll 8
      for (int i = 0; i < kLines; ++i) __builtin_prefetch(line_ + (kSlot * kLines + i) * 16);
    }
  }
  LONGSPAN_INLINE void EndStep() { line_ += 2 * kLines * 16; }

 private:
  static constexpr int kLines = 5;  // in each of two slots: all 64 in the seven steps after the first
  const float* line_;
};

// Products one after another, of which each is run when the next one is known.
class ProductStream {
 public:
  // `unused` is room for sums that nobody needs.
  LONGSPAN_INLINE explicit ProductStream(float* unused) : before_(unused) {}

  void Add(const Product& next) {
    if (is_empty_) {
      LoadOperands(next.left, next.right);
    } else {
      Run(next);
    }
    waiting_ = next;
    is_empty_ = false;
  }
  void End() {
    if (is_empty_) return;
    Run(waiting_);
    StoreSums(waiting_.sums);
  }

 private:
  LONGSPAN_INLINE void Run(const Product& next) {
    PrefetchWork work(next.sums);
    RunProduct(waiting_, next, before_, work);
    before_ = waiting_.sums;
  }

  Product waiting_ = {};
  bool is_empty_ = true;
  float* before_;
};

}  // namespace
}  // namespace longspan::cpu
