// The files of a data set: what lies at a path, which of it is taken, what is put before each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_options.h"

namespace longspan {

// Patterns separated by commas, as in "*.c,*.h,!*test*": a file is taken if one of them matches, or there are
// only those with "!", and none of those with "!" does. `*` stands for any characters, also slashes, `?` for
// one,
// `[abc]` for one of these. A pattern without a slash is compared with the file's name, one with a slash with
// its path below the folder, with and without a slash in front: "drivers/*" or "*/tests/*".
class PathFilter {
 public:
  explicit PathFilter(std::string_view patterns);  // throws Error(kUsage) for an empty pattern
  bool Takes(std::string_view relative_path) const;

 private:
  std::vector<std::string> taken_, left_out_;
};

// The line that is put before each file of a folder: {path} is its path below the folder; \n and \t may be
// written so. A line break is added if it ends in none.
class FileHeader {
 public:
  explicit FileHeader(std::string_view pattern);  // throws Error(kUsage) for another {word}
  bool empty() const { return pattern_.empty(); }
  std::string For(std::string_view relative_path) const;  // nothing if the header is empty

 private:
  std::string pattern_;
};

struct DataFile {
  std::string path;
  std::string relative_path;  // below the folder
  int64_t bytes = 0;
};

struct DataFiles {
  std::string root;  // the path that was asked for
  bool is_folder = false;
  std::vector<DataFile> files;
  int64_t num_left_out = 0;  // by the filter

  int64_t total_bytes() const;
};

// The file itself, or every regular file below a folder that the filter takes, in byte order of the paths.
// Links to files are followed, those to folders are not; hidden files and folders (leading dot) are left out,
// and not counted. Throws Error if a folder cannot be listed, or the filter takes none of the files.
DataFiles ListDataFiles(const std::string& path, const std::string& filter);

// Throws Error(kUsage) if an option for folders is set but none of the paths is one.
void RequireFolderFor(const DataOptions& options, const std::vector<std::string>& paths);

}  // namespace longspan
