#include "core/directory_writer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::WriteText;

size_t NumEntries(const std::string& directory) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

class DirectoryWriterTest : public ::testing::Test {
 protected:
  testing::TemporaryDirectory directory_;
};

TEST_F(DirectoryWriterTest, AppearsAtOnceOrNotAtAll) {
  const std::string path = directory_ / "a/b";
  {
    DirectoryWriter writer(path);
    WriteNewFile(writer.temporary() + "/x", "1");
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(NumEntries(directory_ / "a"), 0u);

  for (const char* end : {"", "/", "/."}) {
    DirectoryWriter writer(path + end);
    WriteNewFile(writer.temporary() + "/x", "1");
    writer.Finish();
    EXPECT_EQ(ReadTextFile(path + "/x"), "1");
    fs::remove(path + "/x");  // an empty one may be written
  }
  EXPECT_EQ(NumEntries(directory_ / "a"), 1u);
}

TEST_F(DirectoryWriterTest, APathMayBeRelative) {
  const fs::path before = fs::current_path();
  fs::current_path(fs::path(directory_ / "x").parent_path());
  for (const std::string path : {"bare", "./dotted", "new/inner"}) {
    DirectoryWriter writer(path);
    WriteNewFile(writer.temporary() + "/x", "1");
    writer.Finish();
    EXPECT_EQ(ReadTextFile(directory_ / (path + "/x")), "1");
  }
  fs::current_path(before);
}

TEST_F(DirectoryWriterTest, ALinkToAnEmptyDirectoryStays) {
  fs::create_directory(directory_ / "disk");
  fs::create_directory_symlink("disk", directory_ / "link");
  DirectoryWriter writer(directory_ / "link");
  WriteNewFile(writer.temporary() + "/x", "1");
  writer.Finish();
  EXPECT_TRUE(fs::is_symlink(directory_ / "link"));
  EXPECT_EQ(ReadTextFile(directory_ / "disk/x"), "1");
}

TEST_F(DirectoryWriterTest, WhatIsThereStays) {
  WriteText(directory_ / "full/x", "1");
  WriteText(directory_ / "file", "1");
  ExpectError(
      {"full", "not empty"}, [&] { DirectoryWriter writer(directory_ / "full"); }, ExitCode::kUsage);
  ExpectError(
      {"file is no directory"}, [&] { DirectoryWriter writer(directory_ / "file"); }, ExitCode::kUsage);
  ExpectError(
      {"no output directory"}, [&] { DirectoryWriter writer(""); }, ExitCode::kUsage);
  EXPECT_EQ(NumEntries(directory_.path()), 2u);

  // Filled by another while we wrote.
  DirectoryWriter writer(directory_ / "late");
  WriteText(directory_ / "late/x", "other");
  ExpectError(
      {"late", "not empty"}, [&] { writer.Finish(); }, ExitCode::kResource);
  EXPECT_EQ(ReadTextFile(directory_ / "late/x"), "other");
}

// Which somebody else may have made, in a folder that all may write to.
TEST_F(DirectoryWriterTest, ALinkAtTheTemporaryNameIsNotFollowed) {
  WriteText(directory_ / "precious/x", "1");
  fs::create_directory_symlink("precious", directory_ / ".tmp-a");
  ExpectError(
      {".tmp-a is a symbolic link", "remove it"}, [&] { DirectoryWriter writer(directory_ / "a"); },
      ExitCode::kResource);
  EXPECT_EQ(ReadTextFile(directory_ / "precious/x"), "1");
}

TEST_F(DirectoryWriterTest, WhatAKilledProcessLeftGoesButNotWhatIsBeingWritten) {
  WriteText(directory_ / ".tmp-a/half/x", "1");
  DirectoryWriter writer(directory_ / "a");
  EXPECT_EQ(NumEntries(writer.temporary()), 0u);
  WriteNewFile(writer.temporary() + "/x", "1");
  ExpectError(
      {"another process", "/a;"}, [&] { DirectoryWriter second(directory_ / "a"); }, ExitCode::kUsage);
  writer.Finish();
  EXPECT_EQ(ReadTextFile(directory_ / "a/x"), "1");
}

}  // namespace
}  // namespace longspan
