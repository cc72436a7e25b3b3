#include "data/decompress.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <random>

#include "core/file.h"
#include "support/compress.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::Gzip;
using testing::TemporaryDirectory;
using testing::WriteText;
using testing::Zstd;

constexpr int64_t kMost = int64_t{1} << 30;

std::string Content(const std::string& path, int64_t most = kMost) {
  return ReadAll(*OpenCompressed(path), path, most);
}

// Text that compresses a little.
std::string RandomText(size_t size) {
  std::mt19937 random(7);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>('a' + random() % 20);
  return text;
}

class DecompressTest : public ::testing::Test {
 protected:
  // The same text in both forms.
  std::vector<std::string> Write(const std::string& text) {
    return {WriteText(folder_ / "a.txt.gz", Gzip(text)), WriteText(folder_ / "a.txt.zst", Zstd(text))};
  }
  TemporaryDirectory folder_;
};

TEST_F(DecompressTest, NamesSayWhatIsCompressed) {
  EXPECT_TRUE(IsCompressed("a.gz"));
  EXPECT_TRUE(IsCompressed("d/a.jsonl.zst"));
  EXPECT_FALSE(IsCompressed("a.txt"));
  EXPECT_EQ(WithoutCompression("d/a.jsonl.zst"), "d/a.jsonl");
  EXPECT_EQ(WithoutCompression("a.txt.gz"), "a.txt");
  EXPECT_EQ(WithoutCompression("a.jsonl"), "a.jsonl");
}

TEST_F(DecompressTest, TextComesBack) {
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{100}, (size_t{1} << 20) - 1, size_t{1} << 20, size_t{3000000}}) {
    const std::string text = RandomText(size);
    for (const std::string& path : Write(text)) EXPECT_TRUE(Content(path) == text) << path << " of " << size;
  }
}

TEST_F(DecompressTest, ReadsComeInAnySize) {
  const std::string text = RandomText(10000);
  for (const std::string& path : Write(text)) {
    const auto decompressor = OpenCompressed(path);
    std::string whole, part(777, '\0');
    size_t n;
    do {
      n = decompressor->Read(part);
      whole += part.substr(0, n);
    } while (n == part.size());
    EXPECT_EQ(whole, text) << path;
    EXPECT_EQ(decompressor->Read(part), 0u);
    EXPECT_EQ(decompressor->consumed(), static_cast<int64_t>(std::filesystem::file_size(path)));
  }
}

TEST_F(DecompressTest, StreamsOneBehindTheOtherAreOne) {
  EXPECT_EQ(Content(WriteText(folder_ / "a.gz", Gzip("one ") + Gzip("") + Gzip("two"))), "one two");
  EXPECT_EQ(Content(WriteText(folder_ / "b.gz", Gzip("one") + std::string(100, '\0'))), "one");
  const std::string skippable("\x50\x2A\x4D\x18\x03\0\0\0abc", 11);
  EXPECT_EQ(Content(WriteText(folder_ / "a.zst", Zstd("one ") + skippable + Zstd("two"))), "one two");
}

TEST_F(DecompressTest, WhatIsNotWholeIsAnError) {
  const std::string text = RandomText(200000);
  for (const std::string& path : Write(text)) {
    const std::string whole = ReadTextFile(path);
    for (const size_t size : {size_t{0}, size_t{3}, size_t{20}, whole.size() / 2, whole.size() - 1})
      ExpectError({path, "it ends before its text does"},
                  [&] { Content(WriteText(path, whole.substr(0, size))); });
    std::string damaged = whole;
    damaged[whole.size() / 2] ^= 0x10;
    ExpectError({path, "cannot be decompressed"}, [&] { Content(WriteText(path, damaged)); });
    ExpectError({path, "cannot be decompressed"}, [&] { Content(WriteText(path, whole + "more text")); });
    ExpectError({path, "cannot be decompressed"},
                [&] { Content(WriteText(path, "no compressed file at all")); });
  }
  ExpectError({"missing.gz", "No such file"}, [&] { OpenCompressed(folder_ / "missing.gz"); });
}

TEST_F(DecompressTest, ABombIsAnError) {
  for (const std::string& path : Write(std::string(size_t{8} << 20, ' '))) {
    ASSERT_LT(std::filesystem::file_size(path), 50000u);
    ExpectError(
        {path, "more than 7 MiB"}, [&] { Content(path, int64_t{7} << 20); }, ExitCode::kResource);
    EXPECT_EQ(Content(path, int64_t{8} << 20).size(), size_t{8} << 20);
  }
}

}  // namespace
}  // namespace longspan
