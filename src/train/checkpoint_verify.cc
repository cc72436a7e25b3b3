#include "train/checkpoint_verify.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "comm/agreement.h"
#include "core/file.h"
#include "core/names.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_state.h"
#include "train/checksums.h"
#include "train/safetensors.h"

namespace longspan {
namespace {

constexpr size_t kErrorBytes = 1024;  // of what a rank says of a file that it cannot read

template <class... Args>
void RequireWhole(bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) throw DamagedCheckpoint(fmt::format(message, std::forward<Args>(args)...));
}

std::string PathIn(const std::string& directory, const std::string& name) { return directory + "/" + name; }

// None where there is no such file.
Checksums ReadChecksums(const std::string& directory) {
  const std::string path = PathIn(directory, kChecksumsFile);
  if (!Exists(path)) return {};
  try {
    return ParseChecksums(ReadTextFile(path), path);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kInput) throw;
    throw DamagedCheckpoint(error.what());
  }
}

void RequireSizes(const std::string& directory, const Checksums& checksums) {
  for (const auto& [name, sum] : checksums) {
    const std::string path = PathIn(directory, name);
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(path, error);
    RequireWhole(!error, "{}: {}; {} has it", path, error.message(), kChecksumsFile);
    RequireWhole(size == static_cast<uintmax_t>(sum.bytes), "{}: it has {} bytes, and {} says {}", path, size,
                 kChecksumsFile, sum.bytes);
  }
}

void RequireChecksum(const std::string& directory, const std::string& name, const Checksum& got,
                     const Checksum& wanted) {
  RequireWhole(got == wanted,
               "{}: its CRC-32 is {:08x}, and {} says {:08x}: it was changed or damaged since it was "
               "written; bring it back, or take another checkpoint (without {} it is loaded as it is)",
               PathIn(directory, name), got.crc, kChecksumsFile, wanted.crc, kChecksumsFile);
}

// What can be known without reading all of it. Gives the text of checksums.json, empty if there is none.
std::string Inspect(const std::string& directory) {
  RequireWhole(IsDirectory(directory), "{} is no folder", directory);
  const Checksums checksums = ReadChecksums(directory);
  RequireSizes(directory, checksums);
  ReadTextFile(PathIn(directory, "config.json"));
  ReadCheckpointState(PathIn(directory, "state.json"), /*wanted_optimizer=*/"");
  for (const char* stem : {"model", "optimizer"}) SafetensorsDirectory(directory, stem);
  return checksums.empty() ? "" : WriteChecksums(checksums);
}

// What f gives on the first rank, on all of them. They throw what it throws, all alike: what a file is to
// blame for is damage.
template <class F>
std::string OnFirstRank(Comm& world, F f) {
  std::string answer;
  if (world.rank() == 0) {
    try {
      answer = fmt::format("{}{}", static_cast<int>(ExitCode::kOk), f());
    } catch (const Error& error) {
      answer = fmt::format("{}{}", static_cast<int>(error.code()), error.what());
    }
  }
  answer = ShareText(world, answer);
  const auto code = static_cast<ExitCode>(answer[0] - '0');
  answer.erase(0, 1);
  RequireWhole(code != ExitCode::kInput, "{}", answer);
  Require(code, code == ExitCode::kOk, "{}", answer);
  return answer;
}

// Of a file's bytes those that a rank reads.
Range PartOf(const Comm& world, int rank, const Checksum& file) {
  return {file.bytes * rank / world.size(), file.bytes * (rank + 1) / world.size()};
}

// A rank's answer: an error, or zeros, and the CRC of its part of each file.
std::vector<char> ReadParts(const std::string& directory, const Checksums& checksums, const Comm& world) {
  std::vector<char> record(kErrorBytes + checksums.size() * sizeof(uint32_t));
  char* next = record.data() + kErrorBytes;
  try {
    for (const auto& [name, wanted] : checksums) {
      const Range part = PartOf(world, world.rank(), wanted);
      const Checksum sum = ChecksumOfFile(PathIn(directory, name), part.begin, part.end);
      Require(sum.bytes == part.size(), "{}: it ends before byte {}", PathIn(directory, name), part.end);
      std::memcpy(next, &sum.crc, sizeof(sum.crc));
      next += sizeof(sum.crc);
    }
  } catch (const Error& error) {
    const std::string text = Shortened(error.what(), kErrorBytes - 16);
    std::memcpy(record.data(), text.data(), std::min(text.size(), kErrorBytes - 1));
  }
  return record;
}

// Collective.
void RequireContents(const std::string& directory, const Checksums& checksums, Comm& world) {
  std::vector<char> mine = ReadParts(directory, checksums, world),
                    all(mine.size() * static_cast<size_t>(world.size()));
  world
      .AllGather(Tensor(mine.data(), DType::kByte, {std::ssize(mine)}),
                 Tensor(all.data(), DType::kByte, {std::ssize(all)}))
      .Wait();
  const auto record_of = [&](int rank) { return all.data() + static_cast<size_t>(rank) * mine.size(); };
  for (int rank = 0; rank < world.size(); ++rank)
    RequireWhole(*record_of(rank) == '\0', "{}", record_of(rank));
  size_t place = kErrorBytes;
  for (const auto& [name, wanted] : checksums) {
    Checksum got;
    for (int rank = 0; rank < world.size(); ++rank) {
      Checksum part = {.bytes = PartOf(world, rank, wanted).size()};
      std::memcpy(&part.crc, record_of(rank) + place, sizeof(part.crc));
      got.Add(part);
    }
    RequireChecksum(directory, name, got, wanted);
    place += sizeof(got.crc);
  }
}

}  // namespace

void RequireSizes(const std::string& directory) { RequireSizes(directory, ReadChecksums(directory)); }

void RequireContents(const std::string& directory, const std::string& stem) {
  for (const auto& [name, sum] : ReadChecksums(directory))
    if (name.starts_with(stem) && name.find(".safetensors") != name.npos)
      RequireChecksum(directory, name, ChecksumOfFile(PathIn(directory, name), 0, sum.bytes), sum);
}

void VerifyCheckpoint(const std::string& directory, Comm& world) {
  const ReadingCheckpoint reading(directory);
  const std::string text = OnFirstRank(world, [&] { return Inspect(directory); });
  if (!text.empty()) RequireContents(directory, ParseChecksums(text, kChecksumsFile), world);
}

}  // namespace longspan
