// A message that is longer than an int can say.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "comm/comm.h"
#include "unit/comm/ranks.h"

namespace longspan {
namespace {

constexpr int64_t kWindow = int64_t{4} << 20, kNumWindows = 600;  // 2.3 GiB
constexpr int64_t kBytes = kWindow * kNumWindows;
static_assert(kBytes > int64_t{1} << 31);

// So many addresses over a few megabytes of memory, which lie there again and again.
class LongMemory {
 public:
  LongMemory() {
    const int fd = memfd_create("long", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, kWindow) == 0);
    void* all = mmap(nullptr, static_cast<size_t>(kBytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    data_ = static_cast<uint8_t*>(all);
    for (int64_t i = 0; i < kNumWindows; ++i)
      CHECK(mmap(data_ + i * kWindow, static_cast<size_t>(kWindow), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
    close(fd);
  }
  ~LongMemory() { munmap(data_, static_cast<size_t>(kBytes)); }
  uint8_t* data() const { return data_; }
  Tensor bytes() const { return Tensor(data_, DType::kByte, {kBytes}); }

 private:
  uint8_t* data_;
};

TEST(LongMessage, ArrivesWhole) {
  testing::RunRanks(2, [](Comm& comm) {
    const LongMemory memory;
    std::vector<uint8_t> pattern(static_cast<size_t>(kWindow));
    for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<uint8_t>(i % 251);
    const int64_t sent_before = comm.traffic().bytes_sent;
    if (comm.rank() == 0) {
      std::memcpy(memory.data(), pattern.data(), pattern.size());
      comm.Send(memory.bytes(), 1).Wait();
      EXPECT_EQ(comm.traffic().bytes_sent - sent_before, kBytes);
    } else {
      comm.Recv(memory.bytes(), 0).Wait();
      EXPECT_EQ(std::memcmp(memory.data(), pattern.data(), pattern.size()), 0);
    }
  });
}

}  // namespace
}  // namespace longspan
