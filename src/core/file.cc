#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/check.h"

namespace longspan {
namespace {

// What to do about an errno.
const char* Advice(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return "; check the path";
    case EISDIR:
      return "; name a file in it";
    case EEXIST:
      return "; remove it or choose another name";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; check its permissions and those of its folder";
    case ENOSPC:
    case EDQUOT:
      return "; free some space or write elsewhere";
    case EFBIG:
      return "; raise the limit on file sizes (ulimit -f) or write elsewhere";
    case EMFILE:
    case ENFILE:
      return "; raise the limit on open files (ulimit -n)";
    case ENAMETOOLONG:
      return "; choose a shorter name";
    case ELOOP:
      return "; its symbolic links lead in a circle: mend them";
    default:
      return "";
  }
}

[[noreturn]] void ThrowReadError(const std::string& path, int error) {
  const bool path_is_wrong =
      error == ENOENT || error == ENOTDIR || error == EISDIR || error == ENAMETOOLONG || error == ELOOP;
  ThrowFileError("cannot read", path, error, path_is_wrong ? ExitCode::kInput : ExitCode::kResource);
}

// Closes when the scope ends, also by an exception.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int OpenForReading(const std::string& path, int flags) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (fd < 0) ThrowReadError(path, errno);
  return fd;
}

// A regular file, open for reading, and its size.
class RegularFile {
 public:
  // O_NONBLOCK: a pipe that nobody writes to is to be refused below, not waited for.
  explicit RegularFile(const std::string& path) : file_(OpenForReading(path, O_NONBLOCK)) {
    struct stat status;
    if (fstat(file_.get(), &status) != 0) ThrowReadError(path, errno);
    if (S_ISDIR(status.st_mode)) ThrowReadError(path, EISDIR);
    Require(S_ISREG(status.st_mode), "cannot read '{}': it is a pipe or a device; copy it to a file first",
            path);
    size_ = static_cast<size_t>(status.st_size);
  }
  int fd() const { return file_.get(); }
  size_t size() const { return size_; }

 private:
  const FileDescriptor file_;
  size_t size_ = 0;
};

// This process's, where the kernel says it: to ask umask() is to change it, for all threads.
mode_t Umask() {
  constexpr std::string_view kField = "Umask:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(kField)) return static_cast<mode_t>(std::strtoul(&line[kField.size()], nullptr, 8));
  return 0077;
}

// False if there is nothing at the path, whose status is else `status`.
bool FindStatus(const std::string& path, struct stat& status) {
  if (stat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) ThrowReadError(path, errno);
  return false;
}

}  // namespace

void ThrowFileError(const char* action, const std::string& path, int error, ExitCode code) {
  throw Error(fmt::format("{} '{}': {}{}", action, path, std::strerror(error), Advice(error)), code);
}

bool Exists(const std::string& path) {
  struct stat status;
  return FindStatus(path, status);
}

bool IsDirectory(const std::string& path) {
  struct stat status;
  return FindStatus(path, status) && S_ISDIR(status.st_mode);
}

bool IsRegularFile(const std::string& path) {
  struct stat status;
  return FindStatus(path, status) && S_ISREG(status.st_mode);
}

MappedFile::MappedFile(const std::string& path) {
  const RegularFile file(path);
  if (file.size() == 0) return;  // nothing to map, and mmap refuses it
  void* data = mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (data == MAP_FAILED) ThrowReadError(path, errno);
  data_ = data;
  size_ = file.size();
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::Unload(std::span<const std::byte> part) const {
  // From the page it begins in, whose other bytes were read before, to the last that it fills.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const std::byte* const base = bytes().data();
  const auto offset_of = [&](const std::byte* at) { return static_cast<size_t>(at - base); };
  if (part.empty()) return;
  const size_t begin = offset_of(part.data()) / page * page;
  const size_t end = offset_of(part.data() + part.size());
  const size_t last = end == size_ ? end : end / page * page;
  if (begin < last) madvise(static_cast<std::byte*>(data_) + begin, last - begin, MADV_DONTNEED);
}

FileWriter::FileWriter(const std::string& path) : path_(path) {
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);  // O_EXCL follows no link
  if (fd_ < 0) ThrowFileError("cannot create", path, errno, ExitCode::kResource);
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(path_.c_str());
}

void FileWriter::Write(const void* data, size_t size) {
  CHECK(fd_ >= 0);
  const char* rest = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = write(fd_, rest, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) ThrowFileError("cannot write", path_, errno, ExitCode::kResource);
    rest += n;
    size -= static_cast<size_t>(n);
    written_ += n;
  }
}

void FileWriter::Finish() {
  CHECK(fd_ >= 0);
  // EPERM: a file system that keeps no modes, but has one for all its files.
  if (fchmod(fd_, 0666 & ~Umask()) != 0 && errno != EPERM)
    ThrowFileError("cannot write", path_, errno, ExitCode::kResource);
  if (fsync(fd_) != 0) ThrowFileError("cannot write", path_, errno, ExitCode::kResource);
  if (close(std::exchange(fd_, -1)) != 0) {
    const int error = errno;
    unlink(path_.c_str());
    ThrowFileError("cannot write", path_, error, ExitCode::kResource);
  }
}

FileAppender::FileAppender(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666)) {
  Require(ExitCode::kResource, fd_ >= 0 || errno != ELOOP,
          "cannot write '{}': it is a symbolic link, and what that names is not written; remove it", path);
  if (fd_ < 0) ThrowFileError("cannot open", path, errno, ExitCode::kResource);
}

FileAppender::~FileAppender() { close(fd_); }

void FileAppender::Append(std::string_view piece) {
  const ssize_t written = write(fd_, piece.data(), piece.size());
  if (written < 0) ThrowFileError("cannot write", path_, errno, ExitCode::kResource);
  Require(ExitCode::kResource, static_cast<size_t>(written) == piece.size(),
          "cannot write '{}': the disk took only a part; is it full?", path_);
}

void WriteNewFile(const std::string& path, std::string_view text) {
  FileWriter file(path);
  file.Write(text.data(), text.size());
  file.Finish();
}

std::string ReadTextFile(const std::string& path) {
  constexpr size_t kMost =
      size_t{1} << 32;  // another file than was meant is larger, and would take all memory
  const RegularFile file(path);
  // The size is only a hint (/proc gives none): one byte more sees the end without growing the text.
  const auto check = [&](size_t size) {
    Require(size <= kMost, "cannot read '{}': it is larger than {} bytes; check the path", path, kMost);
  };
  check(file.size());
  std::string text(file.size() + 1, '\0');
  size_t size = 0;
  for (;;) {
    check(size);
    if (size == text.size()) text.resize(std::min(2 * size + 4096, kMost + 1));
    const ssize_t n = read(file.fd(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) ThrowReadError(path, errno);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  text.resize(size);
  return text;
}

void WriteFileAtomically(const std::string& path, std::string_view text) {
  const std::string beside = path + ".tmp";
  RemoveFile(beside);  // what a killed run left
  WriteNewFile(beside, text);
  RenameFile(beside, path);
}

void RenameFile(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    unlink(from.c_str());
    ThrowFileError("cannot replace", to, error, ExitCode::kResource);
  }
  const size_t slash = to.rfind('/');
  SyncDirectory(slash == std::string::npos ? "." : to.substr(0, slash + 1));
}

void RemoveFile(const std::string& path) { unlink(path.c_str()); }

void MakePrivateDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0) ThrowFileError("cannot make", path, errno, ExitCode::kResource);
}

void OpenToUmask(const std::string& directory) {
  struct stat status;  // in which a bit may have come from the folder above
  if (stat(directory.c_str(), &status) != 0 ||
      chmod(directory.c_str(), (status.st_mode & 07777) | (0777 & ~Umask())) != 0)
    ThrowFileError("cannot change the mode of", directory, errno, ExitCode::kResource);
}

void SyncDirectory(const std::string& path, const FileCalls& calls) {
  const FileDescriptor directory(OpenForReading(path, O_DIRECTORY));
  // EINVAL: a file system that has no such operation, and where nothing more can be done.
  const int error = calls.Sync(directory.get());
  if (error != 0 && error != EINVAL) ThrowFileError("cannot sync", path, error, ExitCode::kResource);
}

}  // namespace longspan
