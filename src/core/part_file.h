// A new file that many write at once, each its own parts of it: threads of a process, or processes that share
// a file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/file_calls.h"

namespace longspan {

// All throw Error(kResource) naming path and cause. `calls` outlives the file.
class PartFile {
 public:
  // Makes a file of so many bytes, for which the file system keeps room if it can: a full disk is found now.
  // One that exists is refused.
  PartFile(const std::string& path, int64_t size, const FileCalls& calls = FileCalls::System());
  // Opens one that another has made.
  explicit PartFile(const std::string& path, const FileCalls& calls = FileCalls::System());
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  void Write(int64_t offset, const void* data, size_t bytes);
  // What this process has written is on the disk when it returns.
  void Sync();

 private:
  const std::string path_;
  const FileCalls& calls_;
  int fd_ = -1;
};

// One that a single one writes, on the disk when this returns.
void WritePartFile(const std::string& path, std::string_view text, const FileCalls& calls);

}  // namespace longspan
