#include "data/files.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "core/check.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

bool IsHidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

bool Matches(const std::string& pattern, std::string_view relative_path) {
  const auto matches = [&](const std::string& text) {
    return fnmatch(pattern.c_str(), text.c_str(), FNM_NOESCAPE) == 0;
  };
  if (pattern.find('/') == pattern.npos)
    return matches(std::string(relative_path.substr(relative_path.rfind('/') + 1)));
  const std::string path(relative_path);
  return matches(path) || matches("/" + path);
}

bool AnyMatches(const std::vector<std::string>& patterns, std::string_view relative_path) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return Matches(pattern, relative_path); });
}

}  // namespace

PathFilter::PathFilter(std::string_view patterns) {
  if (patterns.empty()) return;
  for (size_t begin = 0; begin <= patterns.size();) {
    const size_t end = std::min(patterns.find(',', begin), patterns.size());
    std::string_view pattern = patterns.substr(begin, end - begin);
    begin = end + 1;
    while (pattern.starts_with(' ')) pattern.remove_prefix(1);
    while (pattern.ends_with(' ')) pattern.remove_suffix(1);
    const bool leaves_out = pattern.starts_with('!');
    if (leaves_out) pattern.remove_prefix(1);
    Require(ExitCode::kUsage, !pattern.empty(),
            "data_path_filter '{}' has an empty pattern; give patterns such as *.c,*.h,!*test*", patterns);
    (leaves_out ? left_out_ : taken_).emplace_back(pattern);
  }
}

bool PathFilter::Takes(std::string_view relative_path) const {
  return (taken_.empty() || AnyMatches(taken_, relative_path)) && !AnyMatches(left_out_, relative_path);
}

FileHeader::FileHeader(std::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest.starts_with("\\n") || rest.starts_with("\\t")) {
      pattern_ += rest[1] == 'n' ? '\n' : '\t';
      ++i;
      continue;
    }
    pattern_ += pattern[i];
    if (pattern[i] != '{') continue;
    size_t end = 1;
    while (end < rest.size() && (std::isalnum(static_cast<unsigned char>(rest[end])) || rest[end] == '_'))
      ++end;
    const bool is_word = end > 1 && end < rest.size() && rest[end] == '}';
    Require(ExitCode::kUsage, !is_word || rest.starts_with("{path}"),
            "data_file_header has {}; it knows {{path}} only", rest.substr(0, end + 1));
  }
  if (!pattern_.empty() && !pattern_.ends_with('\n')) pattern_ += '\n';
}

std::string FileHeader::For(std::string_view relative_path) const {
  constexpr std::string_view kPath = "{path}";
  std::string header;
  std::string_view rest = pattern_;
  for (size_t at = rest.find(kPath); at != rest.npos; at = rest.find(kPath)) {
    header += rest.substr(0, at);
    header += relative_path;
    rest.remove_prefix(at + kPath.size());
  }
  header += rest;
  return header;
}

int64_t DataFiles::total_bytes() const {
  int64_t sum = 0;
  for (const DataFile& file : files) sum += file.bytes;
  return sum;
}

DataFiles ListDataFiles(const std::string& path, const std::string& filter) {
  DataFiles list;
  list.root = path;
  std::error_code unreadable;  // said better by whoever opens it
  list.is_folder = fs::is_directory(path, unreadable);
  if (!list.is_folder) {
    const uintmax_t bytes = fs::file_size(path, unreadable);
    list.files.push_back({path, fs::path(path).filename(), unreadable ? 0 : static_cast<int64_t>(bytes)});
    return list;
  }

  const PathFilter path_filter(filter);
  const fs::path root = path;
  try {
    for (fs::recursive_directory_iterator it(root), end; it != end; ++it) {
      if (IsHidden(it->path())) {
        it.disable_recursion_pending();
        continue;
      }
      std::error_code unknown;  // a link to nowhere, or in a circle: reading it says so
      const fs::file_status status = it->status(unknown);
      if (!fs::is_regular_file(status) && !unknown && fs::exists(status)) continue;
      DataFile file;
      file.path = it->path();
      file.relative_path = it->path().lexically_relative(root);
      if (!path_filter.Takes(file.relative_path)) {
        ++list.num_left_out;
        continue;
      }
      const uintmax_t bytes = it->file_size(unknown);
      file.bytes = unknown ? 0 : static_cast<int64_t>(bytes);
      list.files.push_back(std::move(file));
    }
  } catch (const fs::filesystem_error& e) {
    throw Error(fmt::format("cannot list all folders below {}: {}; check their permissions", path,
                            e.code().message()),
                ExitCode::kResource);
  }
  Require(ExitCode::kUsage, !list.files.empty() || list.num_left_out == 0,
          "data_path_filter '{}' takes none of the {} files below {}", filter, list.num_left_out, path);
  std::sort(list.files.begin(), list.files.end(),
            [](const DataFile& a, const DataFile& b) { return a.path < b.path; });
  return list;
}

void RequireFolderFor(const DataOptions& options, const std::vector<std::string>& paths) {
  std::error_code unreadable;  // said better by whoever opens it
  for (const std::string& path : paths)
    if (fs::is_directory(path, unreadable)) return;
  const auto refuse = [&](std::string_view key, bool is_set) {
    Require(ExitCode::kUsage, !is_set, "{} is set, but {} is no folder; leave the key out", key,
            paths.front());
  };
  refuse("data_document", options.data_document != "file");
  refuse("data_path_filter", !options.data_path_filter.empty());
  refuse("data_file_header", !options.data_file_header.empty());
}

}  // namespace longspan
