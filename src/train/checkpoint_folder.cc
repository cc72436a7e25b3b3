#include "train/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <ranges>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/file.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

constexpr const char *kTemporaryPrefix = ".tmp-", *kLatest = "latest";

void RequireDone(const std::error_code& error, const char* action, const fs::path& path) {
  Require(ExitCode::kResource, !error, "cannot {} {}: {}", action, path.string(), error.message());
}

void RequireDone(int error, const char* action, const fs::path& path) {
  RequireDone(std::error_code(error, std::generic_category()), action, path);
}

// Numbers grow with their length, and among those of a length as text does.
std::pair<size_t, std::string> OrderOf(const std::string& name) { return {name.size(), name}; }

bool IsCheckpointName(const std::string& name) {
  return name.size() >= 8 && std::ranges::all_of(name, [](char c) { return '0' <= c && c <= '9'; });
}

// The names of all of them, the last step first.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (std::error_code ignored; IsCheckpointName(it->path().filename()) && it->is_directory(ignored))
      names.push_back(it->path().filename());
  std::ranges::sort(names, std::greater<>(), OrderOf);
  return names;
}

// What `latest` names; empty: it is lost.
fs::path LinkedIn(const fs::path& folder) {
  const fs::path latest = folder / kLatest;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(latest, error))) return {};
  return fs::is_symlink(latest, error) ? folder / fs::read_symlink(latest, error) : latest;
}

// Where at every moment there is a whole checkpoint or none. What was there before gets a temporary name.
void MoveInPlace(const fs::path& from, const fs::path& to, const FileCalls& calls) {
  std::error_code error;
  if (!fs::exists(to, error)) return RequireDone(calls.Rename(from, to), "make", to);
  // Swapped, since a directory with files in it can't be renamed over.
  const int swap_error = calls.Swap(from, to);
  if (swap_error == 0) return;
  if (swap_error != EINVAL && swap_error != ENOSYS) RequireDone(swap_error, "replace", to);

  // A file system that can't swap (NFS, …): for a moment there is nothing, and `latest` may not name it.
  const fs::path folder = to.parent_path();
  const bool was_latest = LinkedIn(folder).filename() == to.filename();
  if (was_latest) fs::remove(folder / kLatest, error);
  const fs::path aside = folder / fmt::format("{}old", kTemporaryPrefix);
  RequireDone(calls.Rename(to, aside), "replace", to);
  const int move_error = calls.Rename(from, to);
  if (move_error == 0) return;
  fs::rename(aside, to, error);  // the first error is what is said
  if (was_latest) fs::create_directory_symlink(to.filename(), folder / kLatest, error);
  RequireDone(move_error, "replace", to);
}

}  // namespace

std::string CheckpointName(int64_t step) { return fmt::format("{:08}", step); }

std::string LatestCheckpoint(const std::string& folder) {
  const fs::path linked = LinkedIn(folder);
  if (linked.empty()) {
    // A copy that dropped links, or a kill between two renames. Numbered directories are always whole.
    const std::vector<std::string> names = NamesIn(folder);
    return names.empty() ? "" : (fs::path(folder) / names.front()).string();
  }
  std::error_code error;
  Require(fs::is_directory(linked, error),
          "{} names {}, which is no checkpoint; point it at one, or remove it",
          (fs::path(folder) / kLatest).string(), linked.string());
  return linked;
}

std::vector<std::string> CheckpointsNewestFirst(const std::string& folder) {
  std::vector<std::string> checkpoints;
  const fs::path linked = LinkedIn(folder);
  const std::string newest = linked.filename();
  if (!linked.empty()) checkpoints.push_back(linked);
  for (const std::string& name : NamesIn(folder))
    if (!IsCheckpointName(newest) || OrderOf(name) < OrderOf(newest))
      checkpoints.push_back((fs::path(folder) / name).string());
  return checkpoints;
}

// Where the file system has no such locks there is nothing to wait for either.
ReadingCheckpoint::ReadingCheckpoint(const std::string& directory)
    : fd_(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ >= 0) flock(fd_, LOCK_SH | LOCK_NB);
}

ReadingCheckpoint::~ReadingCheckpoint() {
  if (fd_ >= 0) close(fd_);
}

std::string TemporaryCheckpoint(const std::string& folder, const std::string& name) {
  return fmt::format("{}/{}{}", folder, kTemporaryPrefix, name);
}

void RequireLink(const std::string& folder) {
  const fs::path latest = fs::path(folder) / kLatest;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(latest, error);
  Require(
      !fs::exists(status) || fs::is_symlink(status),
      "{} is no symbolic link, as of a copy that followed links, and could not be replaced by the next "
      "checkpoint; remove it where the checkpoint is there under its number too, else give it that number",
      latest.string());
}

void RemoveTemporaries(const std::string& folder) {
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().native().starts_with(kTemporaryPrefix)) leftovers.push_back(it->path());
  RequireDone(error, "look into", folder);
  for (const fs::path& path : leftovers) {
    fs::remove_all(path, error);
    RequireDone(error, "remove", path);
  }
}

void PointLatestAt(const std::string& folder, const std::string& name, const FileCalls& calls) {
  const fs::path link = TemporaryCheckpoint(folder, kLatest), latest = fs::path(folder) / kLatest;
  std::error_code error;
  fs::remove(link, error);
  fs::create_directory_symlink(name, link, error);
  RequireDone(error, "make", link);
  RequireDone(calls.Rename(link, latest), "replace", latest);
  SyncDirectory(folder, calls);
}

void PlaceCheckpoint(const std::string& folder, const std::string& name, const FileCalls& calls) {
  MoveInPlace(TemporaryCheckpoint(folder, name), fs::path(folder) / name, calls);
  SyncDirectory(folder, calls);
  PointLatestAt(folder, name, calls);
}

void PruneCheckpoints(const std::string& folder, const std::string& name, int64_t keep,
                      const FileCalls& calls) {
  if (keep == 0) return;
  std::vector<std::string> names = NamesIn(folder);
  const auto is_later = [&](const std::string& other) { return OrderOf(other) > OrderOf(name); };
  std::ranges::stable_partition(names, std::not_fn(is_later));
  for (const std::string& old : names | std::views::drop(keep)) {
    const fs::path path = fs::path(folder) / old;
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool is_read = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    // First out of sight, as a checkpoint is whole or not there.
    if (!is_read) RequireDone(calls.Rename(path, TemporaryCheckpoint(folder, old)), "remove", path);
  }
  RemoveTemporaries(folder);
}

}  // namespace longspan
