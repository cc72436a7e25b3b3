#include "core/directory_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "core/check.h"
#include "core/file.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

void RequireDone(const std::error_code& error, const char* action, const fs::path& path) {
  Require(ExitCode::kResource, !error, "cannot {} {}: {}; check it and its folder, or write elsewhere",
          action, path.string(), error.message());
}

// Without a slash at the end, links followed: the directory that a link names is what is written, beside
// itself.
fs::path Resolved(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);  // a bare new name would stay without a folder
  RequireDone(error, "resolve", path);
  const fs::path resolved = fs::weakly_canonical(whole, error);
  RequireDone(error, "resolve", path);
  return resolved.has_filename() ? resolved : resolved.parent_path();
}

}  // namespace

DirectoryWriter::DirectoryWriter(const std::string& path) {
  Require(ExitCode::kUsage, !path.empty(), "no output directory is given");
  const fs::path resolved = Resolved(path);
  Require(ExitCode::kUsage, !Exists(resolved) || IsDirectory(resolved), "{} is no directory; name another",
          path);
  Require(ExitCode::kUsage, !Exists(resolved) || fs::is_empty(resolved),
          "{} is there already and not empty; name another, or remove it", path);
  path_ = resolved.string();
  temporary_ = resolved.parent_path() / (".tmp-" + resolved.filename().string());

  std::error_code error;
  fs::create_directories(resolved.parent_path(), error);
  RequireDone(error, "make", resolved.parent_path());
  fs::create_directory(temporary_, error);
  RequireDone(error, "make", temporary_);
  // All that is in it will be removed. In a folder that others may write to, it could be a link of theirs.
  lock_fd_ = open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  Require(ExitCode::kResource, lock_fd_ >= 0 || !fs::is_symlink(temporary_, error),
          "cannot write {}: {} is a symbolic link, and what that names is not written; remove it", path,
          temporary_);
  Require(ExitCode::kResource, lock_fd_ >= 0, "cannot open {}: {}", temporary_, std::strerror(errno));
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(lock_fd_);
    throw Error(fmt::format("another process is writing {}; wait for its end, or name another", path),
                ExitCode::kUsage);
  }
  try {
    Clear();
  } catch (...) {
    close(lock_fd_);
    throw;
  }
}

DirectoryWriter::~DirectoryWriter() {
  std::error_code ignored;
  if (!is_finished_) fs::remove_all(temporary_, ignored);
  close(lock_fd_);
}

void DirectoryWriter::Clear() {
  for (const fs::directory_entry& entry : fs::directory_iterator(temporary_)) {
    std::error_code error;
    fs::remove_all(entry.path(), error);
    RequireDone(error, "remove", entry.path());
  }
}

void DirectoryWriter::Finish() {
  CHECK(!is_finished_);
  SyncDirectory(temporary_);
  std::error_code error;
  fs::rename(temporary_, path_, error);  // also over an empty directory
  RequireDone(error, "make", path_);
  is_finished_ = true;
  SyncDirectory(fs::path(path_).parent_path());
}

}  // namespace longspan
