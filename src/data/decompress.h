// Compressed files: gzip (*.gz) and Zstandard (*.zst), as a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace longspan {

bool IsCompressed(std::string_view path);                    // by its name: *.gz or *.zst
std::string_view WithoutCompression(std::string_view path);  // "a.txt.gz" → "a.txt"; others as they are

// What a file holds, from the beginning to the end. Several compressed streams one behind the other are one,
// as for gunzip and unzstd.
class Decompressor {
 public:
  virtual ~Decompressor() = default;

  // Fills `out` from its beginning and returns how many bytes that were: fewer than asked for only at the
  // end. Throws Error naming the file if it is damaged, cut off or followed by something else.
  virtual size_t Read(std::span<char> out) = 0;
  // Compressed bytes that were used so far.
  virtual int64_t consumed() const = 0;
};

// Throws Error if the file cannot be read.
std::unique_ptr<Decompressor> OpenCompressed(const std::string& path);

// All of it (the rest, if some was read). Throws Error(kResource) if that is more than `max_bytes`: a small
// file may hold any number of bytes.
std::string ReadAll(Decompressor& decompressor, const std::string& path, int64_t max_bytes);

}  // namespace longspan
