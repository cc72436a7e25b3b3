// A run's folder of checkpoints: which are there, how one comes and how one goes.
//
//   checkpoints/00000100/   the state after 100 updates; whole at every moment
//   checkpoints/latest      a relative symbolic link to the newest
//   checkpoints/.tmp-…      what is being written or removed, or was when a run was killed
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file_calls.h"

namespace longspan {

std::string CheckpointName(int64_t step);

// checkpoints/latest resolved, or the newest checkpoint where that link is lost, or empty if there is none.
// Throws Error if the link names nothing that exists.
std::string LatestCheckpoint(const std::string& folder);
// What `latest` names, whether it exists or not, and then those of earlier steps, the last one first; where
// the link is lost, of all steps. (Those of later steps are of a run that went back.)
std::vector<std::string> CheckpointsNewestFirst(const std::string& folder);

// A checkpoint that is being read, which nobody removes meanwhile.
class ReadingCheckpoint {
 public:
  explicit ReadingCheckpoint(const std::string& directory);
  ~ReadingCheckpoint();
  ReadingCheckpoint(const ReadingCheckpoint&) = delete;
  ReadingCheckpoint& operator=(const ReadingCheckpoint&) = delete;

 private:
  int fd_;
};

// What follows is for the one process that writes in the folder, which is there. All throw Error(kResource).

// Where a checkpoint is written until it is whole.
std::string TemporaryCheckpoint(const std::string& folder, const std::string& name);
// Throws Error(kInput) if `latest` is there and no link, as of a copy that followed links: it could not be
// replaced.
void RequireLink(const std::string& folder);
// Removes what a save has left, finished or not, or a run that was killed.
void RemoveTemporaries(const std::string& folder);
// Gives the temporary checkpoint, which is synced, its name; one of that name is replaced as a whole. Then
// `latest` names it. On an error it names what it did, or, where that alone could not be synced, the new one.
void PlaceCheckpoint(const std::string& folder, const std::string& name, const FileCalls& calls);
// Replaces the link at once.
void PointLatestAt(const std::string& folder, const std::string& name, const FileCalls& calls);
// Removes all but `keep` checkpoints (0: none): the one of this name, which is the newest, those of the steps
// before it, and last those of later steps. One that is being read stays until another time.
void PruneCheckpoints(const std::string& folder, const std::string& name, int64_t keep,
                      const FileCalls& calls);

}  // namespace longspan
