#include "core/scratch_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

constexpr int64_t kBlock = ScratchFile::kAlignment;
constexpr int64_t kMiB = int64_t{1} << 20;

// Memory at a multiple of kAlignment.
class Memory {
 public:
  explicit Memory(int64_t bytes) : buffer_(bytes + kBlock) {
    const auto address = reinterpret_cast<uintptr_t>(buffer_.data());
    data_ = static_cast<char*>(buffer_.data()) + (kBlock - static_cast<int64_t>(address % kBlock)) % kBlock;
  }
  char* data() const { return data_; }
  void Fill(int64_t bytes, unsigned seed) {
    for (int64_t i = 0; i < bytes; ++i)
      data_[i] = static_cast<char>((static_cast<unsigned>(i) * 2654435761u + seed) >> 13);
  }

 private:
  Buffer buffer_;
  char* data_;
};

// Calls that misbehave as told; all else is the system's.
class FaultyCalls final : public FileCalls {
 public:
  int reserve_error = 0, direct_error = 0;
  int write_error = 0, read_error = 0;
  int64_t good_writes = 1'000'000, good_reads = 1'000'000;  // before the errors
  int64_t most_bytes = int64_t{1} << 40;                    // that one call moves
  mutable int64_t writes = 0, reads = 0, reserved = 0;

  int Reserve(int fd, int64_t bytes) const override {
    reserved = bytes;
    return reserve_error != 0 ? reserve_error : FileCalls::Reserve(fd, bytes);
  }
  int SetDirect(int fd) const override { return direct_error != 0 ? direct_error : FileCalls::SetDirect(fd); }
  ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const override {
    if (writes++ >= good_writes) return errno = write_error, -1;
    return FileCalls::Write(fd, data, Some(bytes), offset);
  }
  ssize_t Read(int fd, void* data, size_t bytes, int64_t offset) const override {
    if (reads++ >= good_reads) {
      if (read_error == 0) return 0;  // the file has ended
      return errno = read_error, -1;
    }
    return FileCalls::Read(fd, data, Some(bytes), offset);
  }

 private:
  size_t Some(size_t bytes) const { return std::min(bytes, static_cast<size_t>(most_bytes)); }
};

// Keeps what the system says of the file.
class StatusCalls final : public FileCalls {
 public:
  mutable struct stat status = {};
  int Reserve(int fd, int64_t bytes) const override {
    EXPECT_EQ(fstat(fd, &status), 0);
    return FileCalls::Reserve(fd, bytes);
  }
};

// A folder on a disk and, if there is one, in memory.
std::vector<std::string> Directories(const testing::TemporaryDirectory& disk) {
  std::vector<std::string> directories = {disk.path()};
  if (access("/dev/shm", W_OK) == 0) directories.push_back("/dev/shm");
  return directories;
}

// It holds activations and weights, perhaps in a folder that all may look into.
TEST(ScratchFile, IsItsOwnersAlone) {
  const testing::TemporaryDirectory disk;
  for (const std::string& directory : Directories(disk)) {
    const StatusCalls calls;
    const ScratchFile file(directory, kBlock, calls);
    EXPECT_EQ(calls.status.st_mode & 0777, 0600u) << directory;
    EXPECT_EQ(calls.status.st_nlink, 0u) << directory;
    EXPECT_EQ(calls.status.st_uid, geteuid()) << directory;
  }
  EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
}

TEST(ScratchFile, GivesBackWhatWasWritten) {
  const testing::TemporaryDirectory disk;
  for (const std::string& directory : Directories(disk)) {
    for (const bool direct : {true, false}) {
      FaultyCalls calls;
      if (!direct) calls.direct_error = EINVAL;
      ScratchFile file(directory, 20 * kMiB, calls);
      if (!direct) {
        EXPECT_FALSE(file.direct());
      }
      // Within a block, whole blocks, over the size of a piece, and with a rest.
      const std::pair<int64_t, int64_t> parts[] = {{0, 1},
                                                   {kBlock, kBlock - 1},
                                                   {2 * kBlock, kBlock},
                                                   {3 * kBlock, 3 * kBlock + 17},
                                                   {kMiB, 17 * kMiB + 100},
                                                   {19 * kMiB, kMiB}};
      for (const auto& [offset, bytes] : parts) {
        Memory memory(bytes);
        memory.Fill(bytes, static_cast<unsigned>(offset));
        file.Write(offset, memory.data(), bytes);
      }
      for (const auto& [offset, bytes] : parts) {
        Memory wanted(bytes), got(bytes + 64);
        wanted.Fill(bytes, static_cast<unsigned>(offset));
        std::memset(got.data() + bytes, 42, 64);
        file.Read(offset, got.data(), bytes);
        EXPECT_EQ(std::memcmp(got.data(), wanted.data(), static_cast<size_t>(bytes)), 0) << offset;
        for (int i = 0; i < 64; ++i) EXPECT_EQ(got.data()[bytes + i], 42) << "behind the end";
      }
    }
  }
}

TEST(ScratchFile, MovesTheRestOfWhatACallLeaves) {
  const testing::TemporaryDirectory disk;
  FaultyCalls calls;
  calls.direct_error = EINVAL;
  calls.most_bytes = kBlock + 512;  // and goes on with the block it broke off in
  ScratchFile file(disk.path(), 10 * kBlock, calls);
  const int64_t bytes = 7 * kBlock + 5;
  Memory wanted(bytes), got(bytes);
  wanted.Fill(bytes, 3);
  file.Write(kBlock, wanted.data(), bytes);
  file.Read(kBlock, got.data(), bytes);
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), static_cast<size_t>(bytes)), 0);
  EXPECT_GE(calls.reads, 8);
}

TEST(ScratchFile, HasNoNameAndItsRoomFromTheStart) {
  const testing::TemporaryDirectory disk;
  const FaultyCalls calls;
  const ScratchFile file(disk.path(), 3 * kBlock + 1, calls);
  EXPECT_EQ(calls.reserved, 4 * kBlock);
  EXPECT_EQ(file.size(), 4 * kBlock);
  EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
}

TEST(ScratchFile, AFileSystemThatReservesNothingWillDo) {
  const testing::TemporaryDirectory disk;
  FaultyCalls calls;
  calls.reserve_error = EOPNOTSUPP;
  ScratchFile file(disk.path(), 2 * kBlock, calls);
  Memory memory(2 * kBlock);
  memory.Fill(2 * kBlock, 1);
  file.Write(0, memory.data(), 2 * kBlock);
  file.Read(0, memory.data(), 2 * kBlock);
}

TEST(ScratchFile, RefusesAFolderThatCannotHoldIt) {
  const testing::TemporaryDirectory disk;
  testing::ExpectError(
      {"offload_directory", disk / "missing", "No such file", "exists"},
      [&] { ScratchFile file(disk / "missing", kBlock); }, ExitCode::kResource);
  testing::ExpectError(
      {disk.path(), "no room for 1152921504606846976 bytes", "are free", "offload_directory"},
      [&] { ScratchFile file(disk.path(), int64_t{1} << 60); }, ExitCode::kResource);
  FaultyCalls calls;
  calls.reserve_error = ENOSPC;
  testing::ExpectError(
      {disk.path(), "no room for 8192 bytes", "No space left", "are free", "choose another offload_directory",
       "keep more on the device"},
      [&] { ScratchFile file(disk.path(), kBlock + 1, calls); }, ExitCode::kResource);
  EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
}

TEST(ScratchFile, SaysWhatFailedAndWhere) {
  const testing::TemporaryDirectory disk;
  Memory memory(20 * kMiB);
  {
    FaultyCalls calls;
    calls.good_writes = 2;  // the first of all, by which it tries direct I/O, and 8 MiB
    calls.write_error = ENOSPC;
    ScratchFile file(disk.path(), 20 * kMiB, calls);
    testing::ExpectError(
        {"cannot write 8388608 bytes at 8388608", disk.path(), "No space left",
         "choose another offload_directory"},
        [&] { file.Write(0, memory.data(), 20 * kMiB); }, ExitCode::kResource);
  }
  {
    FaultyCalls calls;
    calls.good_reads = 0;
    calls.read_error = EIO;
    ScratchFile file(disk.path(), kMiB, calls);
    testing::ExpectError(
        {"cannot read 1048576 bytes at 0", disk.path(), "Input/output error"},
        [&] { file.Read(0, memory.data(), kMiB); }, ExitCode::kResource);
  }
  {
    FaultyCalls calls;
    calls.good_reads = 1;
    ScratchFile file(disk.path(), 9 * kMiB, calls);
    testing::ExpectError(
        {"cannot read 1048576 bytes at 8388608", "only 0 are there"},
        [&] { file.Read(0, memory.data(), 9 * kMiB); }, ExitCode::kResource);
  }
  {
    FaultyCalls calls;
    calls.direct_error = EINVAL;
    calls.most_bytes = 100;  // a disk that takes less than a block is full
    ScratchFile file(disk.path(), kMiB, calls);
    testing::ExpectError(
        {"cannot write 1048576 bytes at 0", "only 100 were taken"},
        [&] { file.Write(0, memory.data(), kMiB); }, ExitCode::kResource);
  }
}

// What takes the flag and then refuses direct I/O is written through the page cache.
TEST(ScratchFile, AFileSystemThatOnlyPretendsToWriteDirectlyWillDo) {
  class Pretends final : public FileCalls {
   public:
    ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const override {
      if ((fcntl(fd, F_GETFL) & O_DIRECT) != 0) return errno = EINVAL, -1;
      return FileCalls::Write(fd, data, bytes, offset);
    }
  };
  const testing::TemporaryDirectory disk;
  const Pretends calls;
  ScratchFile file(disk.path(), kMiB, calls);
  EXPECT_FALSE(file.direct());
  Memory wanted(kMiB), got(kMiB);
  wanted.Fill(kMiB, 5);
  file.Write(0, wanted.data(), kMiB);
  file.Read(0, got.data(), kMiB);
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), static_cast<size_t>(kMiB)), 0);
}

TEST(ScratchFile, RefusesWhatIsNotAlignedOrOutside) {
  const testing::TemporaryDirectory disk;
  ScratchFile file(disk.path(), 2 * kBlock);
  Memory memory(3 * kBlock);
  EXPECT_THROW(file.Write(1, memory.data(), 1), std::logic_error);
  EXPECT_THROW(file.Write(0, memory.data() + 64, 1), std::logic_error);
  EXPECT_THROW(file.Read(0, memory.data() + 64, 1), std::logic_error);
  EXPECT_THROW(file.Write(kBlock, memory.data(), kBlock + 1), std::logic_error);
  EXPECT_THROW(file.Read(2 * kBlock, memory.data(), 1), std::logic_error);
}

}  // namespace
}  // namespace longspan
