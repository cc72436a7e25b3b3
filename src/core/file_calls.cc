#include "core/file_calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>

namespace longspan {
namespace {

template <class Call>
auto Uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace

int FileCalls::Reserve(int fd, int64_t bytes) const {
  return Uninterrupted([&] { return fallocate(fd, 0, 0, bytes); }) == 0 ? 0 : errno;
}

int FileCalls::SetDirect(int fd) const {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0 ? 0 : errno;
}

ssize_t FileCalls::Write(int fd, const void* data, size_t bytes, int64_t offset) const {
  return Uninterrupted([&] { return pwrite(fd, data, bytes, offset); });
}

ssize_t FileCalls::Read(int fd, void* data, size_t bytes, int64_t offset) const {
  return Uninterrupted([&] { return pread(fd, data, bytes, offset); });
}

int FileCalls::Sync(int fd) const {
  return Uninterrupted([&] { return fsync(fd); }) == 0 ? 0 : errno;
}

int FileCalls::Rename(const std::string& from, const std::string& to) const {
  return rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int FileCalls::Swap(const std::string& from, const std::string& to) const {
  return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0 ? 0 : errno;
}

const FileCalls& FileCalls::System() {
  static const FileCalls calls;
  return calls;
}

}  // namespace longspan
