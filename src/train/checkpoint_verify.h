// Whether a checkpoint is still what was written.
#pragma once

#include <string>

#include "comm/comm.h"
#include "core/check.h"

namespace longspan {

// One that cannot be loaded, by anyone: files missing, of the wrong size, with other bytes, or not what they
// should be.
class DamagedCheckpoint : public Error {
 public:
  explicit DamagedCheckpoint(const std::string& message) : Error(message, ExitCode::kInput) {}
};

// Throws DamagedCheckpoint, naming file, got and wanted, unless the checkpoint has all its files as its
// checksums.json says, to the byte, and they are what they should be. One without checksums.json (of before
// there were any) is looked at without its contents. Every file is read once, in parts by all ranks: about a
// second a gigabyte and rank, or what the disk takes. Collective; all ranks throw alike.
void VerifyCheckpoint(const std::string& directory, Comm& world);

// Throws DamagedCheckpoint unless all files that checksums.json names, if there is one, have their sizes.
void RequireSizes(const std::string& directory);
// Throws it unless the files of a stem ("model") have the bytes that checksums.json, if there is one, says.
// Reads all of them.
void RequireContents(const std::string& directory, const std::string& stem);

}  // namespace longspan
