// A disk that fails from some call on.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>

#include "core/file_calls.h"

namespace longspan::testing {

class FailingDisk final : public FileCalls {
 public:
  mutable std::atomic<int64_t> good_reserves = 1'000'000, good_writes = 1'000'000, good_reads = 1'000'000,
                               good_syncs = 1'000'000, good_renames = 1'000'000;
  int Reserve(int fd, int64_t bytes) const override {
    return --good_reserves < 0 ? ENOSPC : FileCalls::Reserve(fd, bytes);
  }
  ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const override {
    if (--good_writes < 0) return errno = ENOSPC, -1;
    return FileCalls::Write(fd, data, bytes, offset);
  }
  ssize_t Read(int fd, void* data, size_t bytes, int64_t offset) const override {
    if (--good_reads < 0) return errno = EIO, -1;
    return FileCalls::Read(fd, data, bytes, offset);
  }
  int Sync(int fd) const override { return --good_syncs < 0 ? EIO : FileCalls::Sync(fd); }
  int Rename(const std::string& from, const std::string& to) const override {
    return --good_renames < 0 ? EIO : FileCalls::Rename(from, to);
  }
  int Swap(const std::string& from, const std::string& to) const override {
    return --good_renames < 0 ? EIO : FileCalls::Swap(from, to);
  }
};

}  // namespace longspan::testing
