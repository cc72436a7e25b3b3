// Files: memory-mapped reading, and writing that is whole or not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/check.h"
#include "core/file_calls.h"

namespace longspan {

// Throws Error: what failed ("cannot write"), where, why by errno, and what to do about it.
[[noreturn]] void ThrowFileError(const char* action, const std::string& path, int error, ExitCode code);

// What is at a path, links followed. False if nothing is there; throws Error as MappedFile does where that
// cannot be found out (a folder that may not be searched, a name that is too long, links in a circle).
bool Exists(const std::string& path);
bool IsDirectory(const std::string& path);
bool IsRegularFile(const std::string& path);

// Read-only mapping of a whole regular file. Throws Error naming the path, the cause and what to do: kInput
// where the path is at fault (missing, a folder, a pipe), kResource where the machine is (permission, memory,
// open files).
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  std::string_view text() const { return {static_cast<const char*>(data_), size_}; }
  // Says that a part of bytes() will not be read soon: its pages no longer count as this process's memory.
  // They read as before.
  void Unload(std::span<const std::byte> part) const;

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Writes to a new file: one that is there, or a link, is refused. Throws Error(kResource) naming path and
// cause (disk full, …). Finish() flushes to the disk (fsync) and closes; without it the destructor removes
// the file. Until then only its owner may read it (0600), from then on whom the umask lets.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void Write(const void* data, size_t size);
  void Finish();
  int64_t size() const { return written_; }

 private:
  std::string path_;
  int fd_ = -1;
  int64_t written_ = 0;
};

// Appends to a file, which is made if it isn't there, each piece with one write: after a kill it ends in a
// whole piece, or in a part of the last. Throws as FileWriter does, also for a link.
class FileAppender {
 public:
  explicit FileAppender(const std::string& path);
  ~FileAppender();
  FileAppender(const FileAppender&) = delete;
  FileAppender& operator=(const FileAppender&) = delete;
  void Append(std::string_view piece);

 private:
  std::string path_;
  int fd_;
};

// A FileWriter from beginning to end.
void WriteNewFile(const std::string& path, std::string_view text);

std::string ReadTextFile(const std::string& path);  // errors as MappedFile's; 4 GiB are the most
// Replaces `path` as a whole: written beside it (`path`.tmp), synced, renamed. At any moment, also after a
// crash, `path` holds all of the old text or all of the new. One writer per path at a time.
void WriteFileAtomically(const std::string& path, std::string_view text);
// The second half of that, for a file that is too large to be held: `from`, which is synced, becomes `to`.
void RenameFile(const std::string& from, const std::string& to);
void RemoveFile(const std::string& path);  // if it is there
// Makes a folder that only its owner may enter (0700), until the second one lets in whom the umask does. Both
// throw Error(kResource).
void MakePrivateDirectory(const std::string& path);
void OpenToUmask(const std::string& directory);

// Makes renames in it durable.
void SyncDirectory(const std::string& path, const FileCalls& calls = FileCalls::System());

}  // namespace longspan
