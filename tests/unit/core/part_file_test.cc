#include "core/part_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/failing_disk.h"
#include "support/files.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::FailingDisk;
using testing::TemporaryDirectory;

TEST(PartFile, ManyWriteTheirParts) {
  const TemporaryDirectory directory;
  const std::string path = directory / "file";
  std::string wanted(100'003, '\0');
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<char>(i * i % 251);
  { PartFile file(path, std::ssize(wanted)); }
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 5; ++writer)
    writers.emplace_back([&, writer] {
      PartFile file(path);
      // Every fifth piece of 997 bytes, the last one first.
      for (int64_t piece = 100 + writer; piece >= 0; piece -= 5) {
        const std::string_view rest =
            std::string_view(wanted).substr(std::min(static_cast<size_t>(piece) * 997, wanted.size()));
        file.Write(piece * 997, rest.data(), std::min<size_t>(997, rest.size()));
      }
      file.Sync();
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_TRUE(ReadTextFile(path) == wanted);
}

TEST(PartFile, AFileIsMadeOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory / "file";
  ExpectError(
      {path, "No such file"}, [&] { PartFile file(path); }, ExitCode::kResource);
  { PartFile file(path, 3); }
  EXPECT_EQ(ReadTextFile(path), std::string(3, '\0'));
  ExpectError(
      {path, "exists"}, [&] { PartFile file(path, 5); }, ExitCode::kResource);
  EXPECT_EQ(ReadTextFile(path).size(), 3u);
  { PartFile file(directory / "empty", 0); }
  EXPECT_EQ(ReadTextFile(directory / "empty"), "");
}

// A system that takes a few bytes at a time, and one that keeps no room.
TEST(PartFile, AnyFileSystem) {
  class Small final : public FileCalls {
   public:
    int Reserve(int, int64_t) const override { return EOPNOTSUPP; }
    ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const override {
      return FileCalls::Write(fd, data, std::min<size_t>(bytes, 7), offset);
    }
  };
  const TemporaryDirectory directory;
  const Small calls;
  WritePartFile(directory / "file", "a text of more than seven bytes", calls);
  EXPECT_EQ(ReadTextFile(directory / "file"), "a text of more than seven bytes");
}

TEST(PartFile, AFullDiskIsSaid) {
  const TemporaryDirectory directory;
  const std::string text = "twelve bytes";
  int number = 0;
  const auto expect = [&](const FailingDisk& disk, const char* cause) {
    const std::string path = directory / fmt::format("file{}", number++);
    ExpectError(
        {"cannot write", path, cause}, [&] { WritePartFile(path, text, disk); }, ExitCode::kResource);
  };
  FailingDisk full, fills, breaks;
  full.good_reserves = 0;
  expect(full, "No space left");
  fills.good_writes = 0;
  expect(fills, "No space left");
  breaks.good_syncs = 0;
  expect(breaks, "Input/output error");
}

}  // namespace
}  // namespace longspan
