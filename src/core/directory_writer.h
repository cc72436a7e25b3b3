// A new directory that is whole or not there, as FileWriter's files are.
#pragma once

#include <string>

namespace longspan {

// Makes `.tmp-NAME` beside a directory that isn't there yet, or is empty; whoever fills it gives it its name
// with Finish(), and without that the destructor removes it. What a killed process left there goes first;
// another that is writing it is refused, and so is a link. Throws Error(kUsage) for a directory that holds
// something, and Error(kResource).
class DirectoryWriter {
 public:
  explicit DirectoryWriter(const std::string& path);
  ~DirectoryWriter();
  DirectoryWriter(const DirectoryWriter&) = delete;
  DirectoryWriter& operator=(const DirectoryWriter&) = delete;

  const std::string& temporary() const { return temporary_; }
  void Finish();  // syncs, renames; the files were synced by those that wrote them

 private:
  void Clear();

  std::string path_, temporary_;
  int lock_fd_ = -1;
  bool is_finished_ = false;
};

}  // namespace longspan
