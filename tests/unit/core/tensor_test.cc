#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/arena.h"
#include "support/expect_error.h"

namespace longspan {
namespace {

TEST(BFloat16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // a tie goes to even
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(static_cast<float>(BFloat16(std::numeric_limits<float>::infinity())),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(Tensor, RowsAndReshapeViewTheSameMemory) {
  Buffer buffer(DType::kFloat32, {4, 3});
  buffer.tensor().data<float>()[7] = 5;
  const Tensor rows = buffer.tensor().Rows(2, 4);
  EXPECT_EQ(rows.dim(0), 2);
  EXPECT_EQ(rows.data<float>()[1], 5);
  EXPECT_EQ(buffer.tensor().Reshape({12}).data<float>()[7], 5);
  EXPECT_EQ(buffer.tensor().ShapeString(), "(4, 3) float32");
  EXPECT_THROW(buffer.tensor().data<int32_t>(), std::logic_error);
}

TEST(Arena, ScopesReleaseAndTheHighMarkIsNamed) {
  for (Arena::Mode mode : {Arena::Mode::kReal, Arena::Mode::kMeasure}) {
    Arena arena(mode);
    const Tensor a = arena.Allocate("a", DType::kFloat32, {100});
    Tensor b;
    {
      Arena::Scope scope(arena);
      b = arena.Allocate("b", DType::kByte, {1000});
      arena.Allocate("b", DType::kByte, {24});
    }
    EXPECT_EQ(arena.used_bytes(), 448);  // in units of 64
    EXPECT_EQ(arena.Allocate("c", DType::kByte, {10}).raw(), b.raw());
    EXPECT_EQ(arena.peak_bytes(), 448 + 1024 + 64);
    EXPECT_EQ(arena.peak_by_name().at("b"), 1024 + 64);
    EXPECT_FALSE(arena.peak_by_name().contains("c"));
    if (mode == Arena::Mode::kReal) a.data<float>()[99] = 1;
    arena.ResetPeak();
    EXPECT_EQ(arena.peak_bytes(), 448 + 64);
    EXPECT_EQ(arena.peak_by_name().at("c"), 64);
  }
}

TEST(Arena, KeepsToALimit) {
  for (Arena::Mode mode : {Arena::Mode::kReal, Arena::Mode::kMeasure}) {
    Arena arena(mode);
    arena.Allocate("a", DType::kFloat32, {16});
    arena.Limit(192);
    {
      Arena::Scope scope(arena);
      arena.Allocate("b", DType::kFloat32, {32});
      testing::ExpectError(
          {"out of device memory", "c needs 64", "192"}, [&] { arena.Allocate("c", DType::kFloat32, {1}); },
          ExitCode::kResource);
    }
    arena.Allocate("d", DType::kFloat32, {32});
  }
}

TEST(Arena, MeasuresMoreThanAnyMachineHas) {
  Arena arena(Arena::Mode::kMeasure);
  arena.Allocate("huge", DType::kBFloat16, {14'000'000, 4096, 32});
  EXPECT_GT(arena.peak_bytes(), int64_t{3'000'000'000'000});
}

}  // namespace
}  // namespace longspan
