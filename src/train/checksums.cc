#include "train/checksums.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "data/json.h"

namespace longspan {
namespace {

using nlohmann::json;

constexpr int64_t kVersion = 1;
constexpr size_t kMostBytes = size_t{64} << 20;  // of checksums.json: of more files than any checkpoint has
constexpr int64_t kReadBytes = 1 << 20;          // at once
constexpr size_t kDigits = 8;

// Of lower-case hexadecimal digits alone.
bool ParseCrc(const json& value, uint32_t& crc) {
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), crc, 16);
  return text.size() == kDigits && error == std::errc() && end == text.data() + text.size() &&
         fmt::format("{:08x}", crc) == text;
}

bool IsFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

}  // namespace

void Checksum::Add(const void* data, size_t size) {
  crc = static_cast<uint32_t>(crc32_z(crc, static_cast<const Bytef*>(data), size));
  bytes += static_cast<int64_t>(size);
}

void Checksum::Add(const Checksum& next) {
  crc = static_cast<uint32_t>(crc32_combine(crc, next.crc, next.bytes));
  bytes += next.bytes;
}

Checksum ChecksumOf(std::string_view text) {
  Checksum sum;
  sum.Add(text.data(), text.size());
  return sum;
}

Checksum ChecksumOfFile(const std::string& path, int64_t begin, int64_t end) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) ThrowFileError("cannot read", path, errno, ExitCode::kInput);
  Checksum sum;
  std::vector<std::byte> chunk(static_cast<size_t>(std::clamp<int64_t>(end - begin, 0, kReadBytes)));
  while (begin < end) {
    const ssize_t n = FileCalls::System().Read(fd, chunk.data(),
                                               static_cast<size_t>(std::min(kReadBytes, end - begin)), begin);
    if (n < 0) {
      const int error = errno;
      close(fd);
      ThrowFileError("cannot read", path, error, ExitCode::kInput);
    }
    if (n == 0) break;
    sum.Add(chunk.data(), static_cast<size_t>(n));
    begin += n;
  }
  close(fd);
  return sum;
}

std::string WriteChecksums(const Checksums& checksums) {
  json files = json::object();
  for (const auto& [name, sum] : checksums)
    files[name] = {{"bytes", sum.bytes}, {"crc32", fmt::format("{:08x}", sum.crc)}};
  return nlohmann::ordered_json{{"version", kVersion}, {"files", files}}.dump(2) + "\n";
}

Checksums ParseChecksums(std::string_view text, const std::string& where) {
  Require(text.size() <= kMostBytes, "{}: it has {} bytes, and {} are the most that one has", where,
          text.size(), kMostBytes);
  const json object = ParseJson(text, where);
  Require(object.is_object() && object.size() == 2 && object.contains("version") && object.contains("files"),
          "{}: an object with version and files alone is wanted", where);
  Require(object["version"] == kVersion, "{}: version {}; this longspan reads version {}", where,
          Quoted(object["version"]), kVersion);
  const json& files = object["files"];
  Require(files.is_object() && !files.empty(), "{}: \"files\" is {}; an object with files is wanted", where,
          Quoted(files));
  Checksums checksums;
  for (const auto& [name, value] : files.items()) {
    Require(IsFileName(name), "{}: {} is not the name of a file in the folder", where, Quoted(json(name)));
    Checksum sum;
    Require(value.is_object() && value.size() == 2 && value.contains("bytes") && value.contains("crc32") &&
                value["bytes"].is_number_unsigned() &&
                value["bytes"].get<uint64_t>() <= std::numeric_limits<int64_t>::max() &&
                ParseCrc(value["crc32"], sum.crc),
            "{}: of {} there is {}; bytes, a whole number, and crc32, eight hexadecimal digits, are wanted",
            where, Quoted(json(name)), Quoted(value));
    sum.bytes = value["bytes"].get<int64_t>();
    checksums.emplace(name, sum);
  }
  return checksums;
}

}  // namespace longspan
