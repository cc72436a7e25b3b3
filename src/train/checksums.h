// Checksums of the files of a checkpoint: CRC-32, that of zlib and gzip.
//
//   {"version": 1, "files": {"config.json": {"bytes": 655, "crc32": "0f3a9c21"}, …}}
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace longspan {

inline constexpr const char* kChecksumsFile = "checksums.json";

// Of bytes that are given one after the other.
struct Checksum {
  int64_t bytes = 0;
  uint32_t crc = 0;

  void Add(const void* data, size_t size);
  void Add(const Checksum& next);  // of the bytes that follow
  friend bool operator==(const Checksum&, const Checksum&) = default;
};
Checksum ChecksumOf(std::string_view text);
// Of a part of a file; at most [begin, end). Throws Error.
Checksum ChecksumOfFile(const std::string& path, int64_t begin, int64_t end);

using Checksums = std::map<std::string, Checksum>;  // by name, of files in one folder
std::string WriteChecksums(const Checksums& checksums);
// Throws Error, beginning with `where`, for anything that WriteChecksums would not have written, and for a
// name that is not that of a file in the folder.
Checksums ParseChecksums(std::string_view text, const std::string& where);

}  // namespace longspan
