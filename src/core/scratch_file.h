// ScratchFile: room on a disk that belongs to this process alone and is gone with it, also if it is killed.
//
// The file has no name (O_TMPFILE), or loses it at once where a file system has no such files. It is read and
// written past the page cache (O_DIRECT), so that what is moved out of memory doesn't come back as cache;
// through it where the file system refuses that (tmpfs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/file_calls.h"

namespace longspan {

class ScratchFile {
 public:
  // What offsets, and the addresses of what is moved, are multiples of.
  static constexpr int64_t kAlignment = 4096;

  // `size` bytes in `directory`, reserved there, so that a full disk is found now. Throws Error(kResource)
  // naming the directory, what is wanted and what is free, and what to do. `calls` outlives it.
  ScratchFile(const std::string& directory, int64_t size, const FileCalls& calls = FileCalls::System());
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  bool direct() const { return direct_; }
  int64_t size() const { return size_; }

  // All of it or an Error(kResource) that says what, where and what to do; what a failed one leaves in `data`
  // or in the file is unknown. A last block of less than kAlignment bytes may run past `bytes` in the file,
  // never in memory. Blocking; one at a time.
  void Write(int64_t offset, const void* data, int64_t bytes);
  void Read(int64_t offset, void* data, int64_t bytes);

 private:
  void Open();
  void Reserve();
  void SetDirect();
  // Whole blocks, piece by piece: call(done, bytes) transfers what comes after `done` and says how much it
  // was.
  template <class Call>
  void ForPieces(const char* action, const char* too_few, int64_t offset, int64_t bytes, const Call& call);
  void WriteBlocks(int64_t offset, const std::byte* data, int64_t bytes);
  void ReadBlocks(int64_t offset, std::byte* data, int64_t bytes);
  [[noreturn]] void Fail(const char* action, int64_t bytes, int64_t offset, const std::string& cause) const;

  const std::string directory_;
  const int64_t size_;
  const FileCalls& calls_;
  int fd_ = -1;
  bool direct_ = false;
  struct Free {
    void operator()(std::byte* block) const;
  };
  std::unique_ptr<std::byte[], Free> block_;  // kAlignment bytes
};

}  // namespace longspan
