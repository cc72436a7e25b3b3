#include "core/memory.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/arena.h"
#include "core/tensor.h"

namespace longspan {
namespace {

TEST(Memory, SomeIsAvailable) { EXPECT_GT(AvailableMemory(), 0); }

// A message may still be read from it.
TEST(MemoryDeathTest, OfAFailedJobOutlivesItsOwner) {
  constexpr int64_t kBytes = int64_t{8} << 20;  // which the system would get back at once
  const auto keep = [] {
    KeepMemory();
    char *of_arena = nullptr, *of_buffer = nullptr;
    {
      Arena arena(Arena::Mode::kReal, 2 * kBytes);
      const Buffer buffer(DType::kByte, {kBytes});
      of_arena = static_cast<char*>(arena.Allocate("message", DType::kByte, {kBytes}).raw());
      of_buffer = static_cast<char*>(buffer.tensor().raw());
      of_arena[kBytes - 1] = of_buffer[kBytes - 1] = 7;
    }
    std::_Exit(of_arena[kBytes - 1] + of_buffer[kBytes - 1]);
  };
  EXPECT_EXIT(keep(), ::testing::ExitedWithCode(14), "");
}

}  // namespace
}  // namespace longspan
