#include "train/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "comm/agreement.h"
#include "core/check.h"
#include "core/file.h"
#include "core/output.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_verify.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

bool HasMetrics(const std::string& run_directory) {
  std::error_code error;
  const uintmax_t size = fs::file_size(MetricsIn(run_directory), error);
  return !error && size > 0;
}

bool SameDirectory(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// Ends at the first step after the checkpoint, or at a line that was cut off by a kill.
void CutMetrics(const std::string& path, int64_t step) {
  const std::string text = ReadTextFile(path);
  size_t keep = 0;
  while (keep < text.size()) {
    const size_t end = text.find('\n', keep);
    if (end == std::string::npos) break;
    const nlohmann::json line = nlohmann::json::parse(text.substr(keep, end - keep), nullptr, false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer() ||
        line["step"] > step)
      break;
    keep = end + 1;
  }
  if (keep != text.size()) WriteFileAtomically(path, std::string_view(text).substr(0, keep));
}

}  // namespace

std::string CheckpointToResume(const std::string& run_directory, const std::string& resume) {
  const std::vector<std::string> checkpoints = CheckpointsNewestFirst(CheckpointsIn(run_directory));
  if (resume == "auto") return checkpoints.empty() ? "" : checkpoints.front();

  const bool has_steps = !checkpoints.empty() || HasMetrics(run_directory);
  if (resume == "none") {
    Require(ExitCode::kUsage, !has_steps,
            "the run directory {} already has steps; go on with resume=auto, or give another run_name",
            run_directory);
    return "";
  }
  Require(IsDirectory(resume),
          "resume: {} is not a checkpoint directory (…/checkpoints/00000100), nor none or auto", resume);
  std::error_code error;
  const fs::path checkpoint = fs::canonical(resume, error);  // `latest` will soon name another
  Require(!error, "resume: cannot resolve {}: {}", resume, error.message());
  Require(ExitCode::kUsage,
          !has_steps || SameDirectory(checkpoint.parent_path(), CheckpointsIn(run_directory)),
          "the run directory {} already has steps of its own, and {} is another run's checkpoint; give "
          "another run_name",
          run_directory, resume);
  return checkpoint.string();
}

StartingPoint FindStartingPoint(const std::string& run_directory, const std::string& resume, Comm& world) {
  const bool is_first = world.rank() == 0;
  StartingPoint start;
  start.wanted = ShareText(world, is_first ? CheckpointToResume(run_directory, resume) : "");
  if (resume != "auto" || start.wanted.empty()) {
    if (!start.wanted.empty()) VerifyCheckpoint(start.wanted, world);
    start.checkpoint = start.wanted;
    return start;
  }
  std::string list;
  if (is_first)
    for (const std::string& checkpoint : CheckpointsNewestFirst(CheckpointsIn(run_directory)))
      list += checkpoint + '\n';
  std::istringstream checkpoints(ShareText(world, list));
  int num_damaged = 0;
  for (std::string checkpoint; std::getline(checkpoints, checkpoint); ++num_damaged) {
    try {
      VerifyCheckpoint(checkpoint, world);
      start.checkpoint = checkpoint;
      return start;
    } catch (const DamagedCheckpoint& error) {
      if (is_first)
        Show(fmt::format("{:<9} {}, which is damaged: {}\n", "skipped", checkpoint, error.what()));
    }
  }
  throw Error(
      fmt::format("resume=auto: {} in {} {} damaged, as the lines above say; bring one back, or begin "
                  "anew under another run_name",
                  num_damaged == 1 ? "the one checkpoint" : fmt::format("all {} checkpoints", num_damaged),
                  CheckpointsIn(run_directory), num_damaged == 1 ? "is" : "are"));
}

std::string ModelDirectory(const std::string& path) {
  Require(IsDirectory(path), "{} is no directory; give a Hugging Face model directory, a checkpoint or a run",
          path);
  if (!Exists(path + "/config.json")) {
    const std::string latest = LatestCheckpoint(CheckpointsIn(path));
    Require(
        !latest.empty(),
        "{} has neither config.json nor checkpoints; give a Hugging Face model directory, a checkpoint or a "
        "run that has saved one",
        path);
    Require(Exists(latest + "/config.json"), "{} has no config.json", latest);
    return latest;
  }
  std::error_code error;
  const fs::path directory = fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
  if (!fs::is_symlink(directory, error)) return path;
  const fs::path resolved = fs::canonical(directory, error);
  Require(!error, "cannot resolve {}: {}", path, error.message());
  return resolved.string();
}

RunDirectory::RunDirectory(const std::string& path, const std::string& resume, const StartingPoint& start,
                           const std::string& config_yaml, int64_t step, const FileCalls& calls) {
  std::error_code error;
  fs::create_directories(path, error);
  Require(ExitCode::kResource, !error,
          "cannot make the run directory {}: {}; give another base_output_directory, or mend that", path,
          error.message());
  lock_fd_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  Require(ExitCode::kResource, lock_fd_ >= 0, "cannot open the run directory {}: {}", path,
          std::strerror(errno));
  try {
    Require(ExitCode::kUsage, flock(lock_fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK,
            "the run directory {} is in use by another run; wait for its end, or give another run_name",
            path);
    Require(ExitCode::kUsage, CheckpointToResume(path, resume) == start.wanted,
            "another run has just changed the run directory {}; start again, or give another run_name", path);
    WriteFileAtomically(ConfigIn(path), config_yaml);
    if (HasMetrics(path)) CutMetrics(MetricsIn(path), step);
    const std::string checkpoints = CheckpointsIn(path);
    if (IsDirectory(checkpoints)) {
      RequireLink(checkpoints);
      RemoveTemporaries(checkpoints);
    }
    if (const fs::path from = start.checkpoint; !from.empty() &&
                                                SameDirectory(from.parent_path(), checkpoints) &&
                                                !SameDirectory(from, fs::path(checkpoints) / "latest"))
      PointLatestAt(checkpoints, from.filename(), calls);
  } catch (...) {
    close(lock_fd_);
    throw;
  }
}

RunDirectory::~RunDirectory() { close(lock_fd_); }

}  // namespace longspan
