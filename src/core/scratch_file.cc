#include "core/scratch_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/check.h"

namespace longspan {
namespace {

constexpr int64_t kPieceBytes = int64_t{8} << 20;  // one system call's; larger ones are no faster

constexpr const char* kWhatToDo = "choose another offload_directory, or keep more on the device";

int64_t RoundDown(int64_t x) { return x / ScratchFile::kAlignment * ScratchFile::kAlignment; }
int64_t RoundUp(int64_t x) { return RoundDown(x + ScratchFile::kAlignment - 1); }

bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(ScratchFile::kAlignment) == 0;
}

}  // namespace

void ScratchFile::Free::operator()(std::byte* block) const { std::free(block); }

ScratchFile::ScratchFile(const std::string& directory, int64_t size, const FileCalls& calls)
    : directory_(directory),
      size_(RoundUp(size)),
      calls_(calls),
      block_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, kAlignment))) {
  Require(ExitCode::kResource, block_ != nullptr, "out of memory: {} bytes were refused by the system",
          kAlignment);
  Open();
  try {
    Reserve();
    SetDirect();
  } catch (...) {
    close(fd_);
    throw;
  }
}

ScratchFile::~ScratchFile() { close(fd_); }

void ScratchFile::Open() {
  fd_ = open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // Not every file system has files without a name, nor did every kernel.
  if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string path = directory_ + "/longspan-offload-XXXXXX";
    fd_ = mkostemp(path.data(), O_CLOEXEC);  // 0600
    if (fd_ >= 0) unlink(path.c_str());
  }
  Require(ExitCode::kResource, fd_ >= 0, "cannot make a file in offload_directory '{}': {}; {}", directory_,
          std::strerror(errno),
          errno == EMFILE || errno == ENFILE ? "raise the limit on open files (ulimit -n)"
                                             : "give a folder that exists and may be written in");
}

void ScratchFile::Reserve() {
  int error = size_ > 0 ? calls_.Reserve(fd_, size_) : 0;
  // A file system that reserves nothing (NFS): a full disk is found when it is full.
  if (error == EOPNOTSUPP || error == ENOSYS) error = ftruncate(fd_, size_) == 0 ? 0 : errno;
  if (error == 0) return;
  struct statvfs status;
  const bool known = fstatvfs(fd_, &status) == 0;
  throw Error(
      fmt::format("offload_directory '{}' has no room for {} bytes: {}{}; {}{}", directory_, size_,
                  std::strerror(error),
                  known ? fmt::format(", {} are free", static_cast<int64_t>(status.f_bavail) *
                                                           static_cast<int64_t>(status.f_frsize))
                        : "",
                  error == EFBIG ? "raise the limit on file sizes (ulimit -f), " : "free some space, ",
                  kWhatToDo),
      ExitCode::kResource);
}

// Some file systems take the flag and refuse the first transfer.
void ScratchFile::SetDirect() {
  if (size_ == 0 || calls_.SetDirect(fd_) != 0) return;
  std::memset(block_.get(), 0, kAlignment);
  if (calls_.Write(fd_, block_.get(), kAlignment, 0) >= 0 || errno != EINVAL) {
    direct_ = true;
    return;
  }
  const int flags = fcntl(fd_, F_GETFL);
  Require(ExitCode::kResource, flags >= 0 && fcntl(fd_, F_SETFL, flags & ~O_DIRECT) == 0,
          "cannot write to offload_directory '{}': {}; {}", directory_, std::strerror(errno), kWhatToDo);
}

void ScratchFile::Write(int64_t offset, const void* data, int64_t bytes) {
  CHECK(0 <= offset && 0 <= bytes && RoundUp(offset + bytes) <= size_);
  CHECK(offset % kAlignment == 0 && IsAligned(data));
  const auto* const from = static_cast<const std::byte*>(data);
  const int64_t whole = RoundDown(bytes), rest = bytes - whole;
  WriteBlocks(offset, from, whole);
  if (rest == 0) return;
  std::memcpy(block_.get(), from + whole, static_cast<size_t>(rest));
  WriteBlocks(offset + whole, block_.get(), kAlignment);
}

void ScratchFile::Read(int64_t offset, void* data, int64_t bytes) {
  CHECK(0 <= offset && 0 <= bytes && RoundUp(offset + bytes) <= size_);
  CHECK(offset % kAlignment == 0 && IsAligned(data));
  auto* const to = static_cast<std::byte*>(data);
  const int64_t whole = RoundDown(bytes), rest = bytes - whole;
  ReadBlocks(offset, to, whole);
  if (rest == 0) return;
  ReadBlocks(offset + whole, block_.get(), kAlignment);
  std::memcpy(to + whole, block_.get(), static_cast<size_t>(rest));
}

// A transfer that ends within a block goes on from its beginning, as direct I/O must.
template <class Call>
void ScratchFile::ForPieces(const char* action, const char* too_few, int64_t offset, int64_t bytes,
                            const Call& call) {
  for (int64_t done = 0; done < bytes;) {
    const int64_t piece = std::min(kPieceBytes, bytes - done);
    const ssize_t n = call(done, static_cast<size_t>(piece));
    if (n < 0) Fail(action, piece, offset + done, std::strerror(errno));
    if (n < kAlignment) Fail(action, piece, offset + done, fmt::format(fmt::runtime(too_few), n));
    done += RoundDown(n);
  }
}

void ScratchFile::WriteBlocks(int64_t offset, const std::byte* data, int64_t bytes) {
  ForPieces("write", "only {} were taken", offset, bytes,
            [&](int64_t done, size_t piece) { return calls_.Write(fd_, data + done, piece, offset + done); });
}

void ScratchFile::ReadBlocks(int64_t offset, std::byte* data, int64_t bytes) {
  ForPieces("read", "only {} are there", offset, bytes,
            [&](int64_t done, size_t piece) { return calls_.Read(fd_, data + done, piece, offset + done); });
}

void ScratchFile::Fail(const char* action, int64_t bytes, int64_t offset, const std::string& cause) const {
  throw Error(
      fmt::format("cannot {} {} bytes at {} of the file in offload_directory '{}': {}; look at the disk, "
                  "{}",
                  action, bytes, offset, directory_, cause, kWhatToDo),
      ExitCode::kResource);
}

}  // namespace longspan
