// Inputs of fuzz targets as files.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "support/files.h"

namespace longspan::fuzz {

// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("input", 0)) { CHECK(fd_ >= 0); }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void Write(std::string_view text) const {
    CHECK(ftruncate(fd_, 0) == 0);
    CHECK(pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }
  std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }

 private:
  const int fd_;
};

// The path of a file that holds `input`, until the next one is asked for.
inline std::string FileOf(std::string_view input) {
  static const MemoryFile file;
  file.Write(input);
  return file.path();
}

// A folder in which an input has these names.
class MemoryFolder {
 public:
  explicit MemoryFolder(const std::vector<std::string>& names) {
    for (const std::string& name : names) std::filesystem::create_symlink(file_.path(), directory_ / name);
  }
  std::string path() const { return directory_.path(); }
  std::string With(std::string_view input) const {  // its path, now with this input
    file_.Write(input);
    return path();
  }

 private:
  const MemoryFile file_;
  const testing::TemporaryDirectory directory_;
};

}  // namespace longspan::fuzz
