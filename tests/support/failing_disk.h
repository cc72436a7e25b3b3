// A disk that fails from some call on.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "core/scratch_file.h"

namespace longspan::testing {

class FailingDisk final : public FileCalls {
 public:
  mutable std::atomic<int64_t> good_writes = 1'000'000, good_reads = 1'000'000;
  ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const override {
    if (--good_writes < 0) return errno = ENOSPC, -1;
    return FileCalls::Write(fd, data, bytes, offset);
  }
  ssize_t Read(int fd, void* data, size_t bytes, int64_t offset) const override {
    if (--good_reads < 0) return errno = EIO, -1;
    return FileCalls::Read(fd, data, bytes, offset);
  }
};

}  // namespace longspan::testing
