// The model of tiles that kernels are tested on (tile_model.h).
#include "backend/cpu/tile_model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/tensor.h"

namespace longspan::cpu {
namespace {

// A (16 × 32), B (32 × 16), C (16 × 16), and C + A · B as the model computes it.
struct Product {
  float a[16][32] = {}, b[32][16] = {}, c[16][16] = {};

  void Run() {
    alignas(64) BFloat16 a_tile[16][32], b_tile[16][16][2];
    for (int m = 0; m < 16; ++m)
      for (int i = 0; i < 32; ++i) a_tile[m][i] = BFloat16(a[m][i]);
    for (int i = 0; i < 32; ++i)
      for (int n = 0; n < 16; ++n) b_tile[i / 2][n][i % 2] = BFloat16(b[i][n]);
    const TilesInUse in_use;
    TileLoad<1>(c, kTileRowBytes);
    TileLoad<4>(a_tile, kTileRowBytes);
    TileStream<6>(b_tile, kTileRowBytes);
    TileDot<1, 4, 6>();
    TileStore<1>(c, kTileRowBytes);
  }
};

TEST(TileModelTest, ProductEqualsThatOfDoubles) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Product p;
  const auto fill = [&](auto& matrix) {
    for (auto& row : matrix)
      for (float& x : row) x = static_cast<float>(BFloat16(normal(random)));
  };
  fill(p.a);
  fill(p.b);
  fill(p.c);
  double want[16][16];
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) {
      want[m][n] = static_cast<double>(p.c[m][n]);
      for (int i = 0; i < 32; ++i)
        want[m][n] += static_cast<double>(p.a[m][i]) * static_cast<double>(p.b[i][n]);
    }
  p.Run();
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) EXPECT_NEAR(static_cast<double>(p.c[m][n]), want[m][n], 1e-5);
}

// Sums whose result tells the order they were made in.
TEST(TileModelTest, EvenAndOddAreSummedApartAndThenTheSumIsAdded) {
  Product p;
  for (auto& row : p.b)
    for (float& x : row) x = 1;
  const float big = 0x1p30f;
  // Row 0: i one after the other would keep the 1, as each big number is taken away at once.
  for (int i = 0; i < 32; ++i) p.a[0][i] = i % 2 == 0 ? big : -big;
  p.a[0][1] = 1;
  // Row 1: in order, 1 is lost in big before −big comes.
  p.a[1][0] = 1;
  p.a[1][2] = big;
  p.a[1][4] = -big;
  // Row 2: the same with the 1 last.
  p.a[2][0] = big;
  p.a[2][2] = -big;
  p.a[2][4] = 1;
  // Row 3: C joins last.
  p.a[3][0] = big;
  p.a[3][1] = -big;
  p.c[3][0] = 1;
  // Row 4: C meets the rounded sum, not one product after the other.
  p.a[4][0] = big;
  p.a[4][1] = 1;
  p.c[4][0] = -big;
  p.Run();
  EXPECT_EQ(p.c[0][0], big);
  EXPECT_EQ(p.c[1][0], 0.0f);
  EXPECT_EQ(p.c[2][0], 1.0f);
  EXPECT_EQ(p.c[3][0], 1.0f);
  EXPECT_EQ(p.c[4][0], 0.0f);
}

TEST(TileModelTest, ProductsAreExactUntilTheyAreAdded) {
  Product p;
  p.a[0][0] = 0x1p-126f;
  p.b[0][0] = 1;
  p.a[0][2] = 0x1p-70f;  // a product of 2^-140, which alone would count as zero
  p.b[2][0] = 0x1p-70f;
  p.Run();
  EXPECT_EQ(p.c[0][0], 0x1p-126f + 0x1p-140f);
}

TEST(TileModelTest, DenormalNumbersCountAsZero) {
  const float smallest = std::numeric_limits<float>::min();
  Product p;
  p.a[0][0] = smallest / 4;  // an operand
  p.b[0][0] = 0x1p100f;
  p.a[1][0] = smallest;  // a product
  p.b[0][1] = 0.5f;
  p.c[2][2] = smallest / 2;     // C
  p.a[3][0] = 1.5f * smallest;  // a sum
  p.b[0][3] = 1;
  p.c[3][3] = -smallest;
  p.a[4][0] = smallest;  // no denormal
  p.b[0][4] = 1;
  p.Run();
  EXPECT_EQ(p.c[0][0], 0.0f);
  EXPECT_EQ(p.c[1][1], 0.0f);
  EXPECT_EQ(p.c[2][2], 0.0f);
  EXPECT_EQ(p.c[3][3], 0.0f);
  EXPECT_EQ(p.c[4][4], smallest);
  // The thread's own mode is as before.
  volatile float half = smallest;
  half = half / 2;
  EXPECT_GT(half, 0.0f);
}

TEST(TileModelTest, LoadsAndStoresByStride) {
  std::vector<unsigned char> from(16 * 100), to(16 * 128, 0xee);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 100);
  {
    const TilesInUse in_use;
    TileLoad<3>(from.data() + 5, 100);
    TileStore<3>(to.data() + 64, 128);
  }
  for (size_t r = 0; r < 16; ++r) {
    EXPECT_EQ(std::memcmp(&to[r * 128 + 64], &from[5 + r * 100], 64), 0) << r;
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(to[r * 128 + i], 0xee);
  }
  const TilesInUse in_use;
  TileLoad<7>(from.data(), 0);
  TileStore<7>(to.data(), 64);
  for (size_t r = 0; r < 16; ++r) EXPECT_EQ(std::memcmp(&to[r * 64], from.data(), 64), 0) << r;
  TileZero<7>();
  TileStore<7>(to.data(), 64);
  for (size_t i = 0; i < 1024; ++i) EXPECT_EQ(to[i], 0);
}

}  // namespace
}  // namespace longspan::cpu
