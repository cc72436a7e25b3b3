#include "train/checksums.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/check.h"
#include "core/file.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

using nlohmann::json;
using testing::ExpectError;

constexpr std::string_view kDigits = "123456789";
constexpr uint32_t kCrcOfDigits = 0xcbf43926;  // the check value of CRC-32

TEST(Checksums, OfPartsAreThatOfTheWhole) {
  EXPECT_EQ(ChecksumOf(""), (Checksum{0, 0}));
  EXPECT_EQ(ChecksumOf(kDigits), (Checksum{9, kCrcOfDigits}));
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "file";
  WriteFileAtomically(path, kDigits);
  for (size_t a = 0; a <= kDigits.size(); ++a) {
    for (size_t b = a; b <= kDigits.size(); ++b) {
      Checksum parts = ChecksumOf(kDigits.substr(0, a)), bytes = parts, file;
      parts.Add(ChecksumOf(kDigits.substr(a, b - a)));
      parts.Add(ChecksumOf(kDigits.substr(b)));
      bytes.Add(kDigits.data() + a, kDigits.size() - a);
      const auto end = [](size_t n) { return static_cast<int64_t>(n); };
      for (const Checksum& part : {ChecksumOfFile(path, 0, end(a)), ChecksumOfFile(path, end(a), end(b)),
                                   ChecksumOfFile(path, end(b), 1000)})
        file.Add(part);
      for (const Checksum& sum : {parts, bytes, file}) EXPECT_EQ(sum, (Checksum{9, kCrcOfDigits}));
    }
  }
  ExpectError({"nowhere"}, [&] { ChecksumOfFile(directory / "nowhere", 0, 1); });
}

// More than is read at once.
TEST(Checksums, OfALongFile) {
  const testing::TemporaryDirectory directory;
  std::string text(3'000'001, 'x');
  for (size_t i = 0; i < text.size(); i += 17) text[i] = static_cast<char>(i);
  WriteFileAtomically(directory / "file", text);
  EXPECT_EQ(ChecksumOfFile(directory / "file", 0, std::ssize(text)), ChecksumOf(text));
  EXPECT_EQ(ChecksumOfFile(directory / "file", 999, 2'500'000),
            ChecksumOf(std::string_view(text).substr(999, 2'500'000 - 999)));
}

TEST(Checksums, AreReadAsTheyWereWritten) {
  const Checksums sums = {{"a", {0, 0}}, {"b.safetensors", {int64_t{1} << 50, 0xffffffff}}, {"ü", {9, 0xa}}};
  EXPECT_EQ(ParseChecksums(WriteChecksums(sums), "here"), sums);
}

TEST(Checksums, AnythingElseIsRefused) {
  const json good = json::parse(WriteChecksums({{"a", {3, 0x0f3a9c21}}}));
  const auto expect = [](const json& value, std::string_view part) {
    ExpectError({"here", part}, [&] { ParseChecksums(value.dump(), "here"); });
  };
  for (const char* name : {"", ".", "..", "/a", "../a", "a/b", "a/", "a\nb", "a\x1b[31m"}) {
    json bad = good;
    bad["files"] = {{name, good["files"]["a"]}};
    expect(bad, "not the name of a file");
  }
  {
    json bad = good;
    bad["files"] = {{std::string("a\0b", 3), good["files"]["a"]}};
    expect(bad, "not the name of a file");
  }
  for (const json& crc : {json("0f3a9c2"), json("0f3a9c211"), json("0F3A9C21"), json("0x3a9c21"),
                          json("-f3a9c21"), json(" f3a9c21"), json(5), json()}) {
    json bad = good;
    bad["files"]["a"]["crc32"] = crc;
    expect(bad, "eight hexadecimal digits");
  }
  for (const json& bytes : {json(-1), json(1.5), json("3"), json(18446744073709551615u), json()}) {
    json bad = good;
    bad["files"]["a"]["bytes"] = bytes;
    expect(bad, "a whole number");
  }
  for (const json& entry : {json(1), json::object(), json({{"bytes", 3}}),
                            json({{"bytes", 3}, {"crc32", "0f3a9c21"}, {"more", 1}})}) {
    json bad = good;
    bad["files"]["a"] = entry;
    expect(bad, "are wanted");
  }
  for (const json& files : {json::array(), json::object(), json(1)}) {
    json bad = good;
    bad["files"] = files;
    expect(bad, "\"files\" is");
  }
  for (const json& version : {json(0), json(2), json("1"), json()}) {
    json bad = good;
    bad["version"] = version;
    expect(bad, "version");
  }
  json more = good;
  more["more"] = 1;
  for (const json& bad : {more, json::array(), json(1), json({{"version", 1}}), json({{"files", {}}})})
    expect(bad, "version and files alone");
  for (const char* text : {"", "{", "{\"version\": 1, \"version\": 1, \"files\": {}}"})
    ExpectError({"here"}, [&] { ParseChecksums(text, "here"); });
  ExpectError({"here", "the most"}, [] { ParseChecksums(std::string((size_t{64} << 20) + 1, ' '), "here"); });
}

}  // namespace
}  // namespace longspan
