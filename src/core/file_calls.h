// The system calls by which a run writes what it may not lose or get wrong, in one place where tests make
// them fail.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace longspan {

// Errors are errno's, as of the calls they stand for. Calls that a signal interrupted are made again.
class FileCalls {
 public:
  virtual ~FileCalls() = default;
  virtual int Reserve(int fd, int64_t bytes) const;  // fallocate: 0, or the error
  virtual int SetDirect(int fd) const;               // O_DIRECT: 0, or the error
  virtual ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const;  // pwrite
  virtual ssize_t Read(int fd, void* data, size_t bytes, int64_t offset) const;         // pread
  virtual int Sync(int fd) const;                                            // fsync: 0, or the error
  virtual int Rename(const std::string& from, const std::string& to) const;  // 0, or the error
  virtual int Swap(const std::string& from, const std::string& to) const;    // RENAME_EXCHANGE, likewise

  static const FileCalls& System();
};

// For tests: what a background thread does before each of its tasks, and what stands for the system's calls,
// both of what is offloaded and of checkpoints.
struct IoHooks {
  std::function<void()> before_each = {};
  const FileCalls* file_calls = &FileCalls::System();
};

}  // namespace longspan
