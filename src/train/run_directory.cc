#include "train/run_directory.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/file.h"
#include "train/checkpoint.h"

namespace longspan {

namespace fs = std::filesystem;

std::string CheckpointToResume(const std::string& run_directory, const std::string& resume) {
  const std::string latest = LatestCheckpoint(CheckpointsIn(run_directory));
  if (resume == "auto") return latest;
  if (resume != "none") {
    Require(fs::is_directory(resume),
            "resume: {} is not a checkpoint directory (…/checkpoints/00000100), nor none or auto", resume);
    return fs::path(resume).lexically_normal().string();
  }
  const std::string metrics = MetricsIn(run_directory);
  const bool has_steps = !latest.empty() || (fs::exists(metrics) && fs::file_size(metrics) > 0);
  Require(ExitCode::kUsage, !has_steps,
          "the run directory {} already has steps; go on with resume=auto, or give another run_name",
          run_directory);
  return "";
}

void OpenRunDirectory(const std::string& run_directory, const std::string& config_yaml, int64_t step) {
  std::error_code error;
  fs::create_directories(run_directory, error);
  Require(ExitCode::kResource, !error, "cannot make the run directory {}: {}", run_directory,
          error.message());
  WriteFileAtomically(run_directory + "/config.yml", config_yaml);

  const std::string metrics = MetricsIn(run_directory);
  if (!fs::exists(metrics)) return;
  // A line that was cut off by a kill ends what can be kept, as does the first step after the checkpoint.
  const std::string text = ReadTextFile(metrics);
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
  if (keep != text.size()) WriteFileAtomically(metrics, std::string_view(text).substr(0, keep));
}

}  // namespace longspan
