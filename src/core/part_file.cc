#include "core/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/check.h"
#include "core/file.h"

namespace longspan {
namespace {

constexpr size_t kPieceBytes = size_t{8} << 20;  // one system call's

int OpenOrThrow(const std::string& path, int flags) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666);
  if (fd < 0) ThrowFileError("cannot create", path, errno, ExitCode::kResource);
  return fd;
}

}  // namespace

PartFile::PartFile(const std::string& path, int64_t size, const FileCalls& calls)
    : path_(path), calls_(calls), fd_(OpenOrThrow(path, O_CREAT | O_EXCL)) {
  int error = size > 0 ? calls_.Reserve(fd_, size) : 0;
  // A file system that keeps no room (NFS): a full disk is found when it is full.
  if (error == EOPNOTSUPP || error == ENOSYS) error = ftruncate(fd_, size) == 0 ? 0 : errno;
  if (error == 0) return;
  close(fd_);
  ThrowFileError("cannot write", path_, error, ExitCode::kResource);
}

PartFile::PartFile(const std::string& path, const FileCalls& calls)
    : path_(path), calls_(calls), fd_(OpenOrThrow(path, 0)) {}

PartFile::~PartFile() { close(fd_); }

void PartFile::Write(int64_t offset, const void* data, size_t bytes) {
  const char* rest = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = calls_.Write(fd_, rest, std::min(bytes, kPieceBytes), offset);
    if (n < 0) ThrowFileError("cannot write", path_, errno, ExitCode::kResource);
    Require(ExitCode::kResource, n > 0, "cannot write '{}': the disk took nothing; is it full?", path_);
    rest += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
}

void PartFile::Sync() {
  if (const int error = calls_.Sync(fd_)) ThrowFileError("cannot write", path_, error, ExitCode::kResource);
}

void WritePartFile(const std::string& path, std::string_view text, const FileCalls& calls) {
  PartFile file(path, static_cast<int64_t>(text.size()), calls);
  file.Write(0, text.data(), text.size());
  file.Sync();
}

}  // namespace longspan
