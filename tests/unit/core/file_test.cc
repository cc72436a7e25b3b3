#include "core/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "core/check.h"
#include "support/expect_error.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    std::string name = (fs::temp_directory_path() / "longspan_file_test.XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~FileTest() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  size_t CountFiles() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(FileTest, WhatIsWrittenIsRead) {
  const std::string text("first line\nzero byte \0 and more", 31);
  {
    FileWriter writer(Path("a"));
    writer.Write(text.data(), 5);
    writer.Write(text.data() + 5, text.size() - 5);
    EXPECT_EQ(writer.size(), 31);
    writer.Finish();
  }
  EXPECT_EQ(ReadTextFile(Path("a")), text);
  MappedFile mapped(Path("a"));
  EXPECT_EQ(mapped.text(), text);
  EXPECT_EQ(mapped.bytes().size(), 31u);

  MappedFile moved(std::move(mapped));
  EXPECT_EQ(moved.text(), text);
  WriteFileAtomically(Path("b"), "other");
  moved = MappedFile(Path("b"));
  EXPECT_EQ(moved.text(), "other");
}

// Kilobytes of mapped files in memory.
int64_t MappedInMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssFile:")) return std::stoll(line.substr(8));
  return -1;
}

TEST_F(FileTest, WhatIsUnloadedTakesNoMemoryAndReadsAsBefore) {
  std::string text(8'000'001, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 7);
  WriteNewFile(Path("a"), text);
  const MappedFile mapped(Path("a"));
  const int64_t before = MappedInMemory();
  ASSERT_GE(before, 0);
  for (const size_t chunk : {size_t{1'000'000}, size_t{300'001}, text.size()}) {
    EXPECT_TRUE(mapped.text() == text);
    EXPECT_GT(MappedInMemory(), before + 7000);
    for (size_t begin = 0; begin < text.size(); begin += chunk)
      mapped.Unload(mapped.bytes().subspan(begin, std::min(chunk, text.size() - begin)));
    EXPECT_LT(MappedInMemory(), before + 500);
  }
  mapped.Unload({});
  mapped.Unload(mapped.bytes().subspan(text.size()));
  EXPECT_TRUE(mapped.text() == text);
}

TEST_F(FileTest, AnEmptyFileIsAFile) {
  WriteFileAtomically(Path("empty"), "");
  EXPECT_EQ(MappedFile(Path("empty")).text(), "");
  EXPECT_EQ(ReadTextFile(Path("empty")), "");
}

// The system says that this file has no bytes; it has thousands.
TEST_F(FileTest, ReadsWhatHasNoSize) {
  const std::string text = ReadTextFile("/proc/self/smaps");
  EXPECT_GT(text.size(), 5000u);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_NE(text.find("[stack]"), std::string::npos);
}

TEST_F(FileTest, ErrorsNameThePathAndTheCause) {
  const std::string missing = Path("missing");
  ExpectError({missing, "No such file", "check the path"}, [&] { MappedFile file(missing); });
  ExpectError({missing, "No such file"}, [&] { ReadTextFile(missing); });
  ExpectError({folder_.string(), "Is a directory"}, [&] { MappedFile file(folder_.string()); });
  ExpectError({folder_.string(), "Is a directory"}, [&] { ReadTextFile(folder_.string()); });
  ExpectError({"/dev/null", "device"}, [] { MappedFile file("/dev/null"); });
  ExpectError(
      {missing + "/x", "No such file"}, [&] { FileWriter writer(missing + "/x"); }, ExitCode::kResource);
  ExpectError({missing}, [&] { SyncDirectory(missing); });
}

// Nobody writes to it: opening it in the usual way would wait for ever.
TEST_F(FileTest, APipeIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  ExpectError({Path("pipe"), "pipe or a device"}, [&] { MappedFile file(Path("pipe")); });
  ExpectError({Path("pipe"), "pipe or a device"}, [&] { ReadTextFile(Path("pipe")); });
}

TEST_F(FileTest, WhatIsAtAPath) {
  WriteFileAtomically(Path("file"), "");
  fs::create_symlink("file", Path("link"));
  fs::create_symlink("nothing", Path("broken"));
  EXPECT_TRUE(Exists(Path("file")) && IsRegularFile(Path("file")) && !IsDirectory(Path("file")));
  EXPECT_TRUE(Exists(Path("link")) && IsRegularFile(Path("link")) && !IsDirectory(Path("link")));
  EXPECT_TRUE(Exists(Path(".")) && !IsRegularFile(Path(".")) && IsDirectory(Path(".")));
  EXPECT_TRUE(Exists("/dev/null") && !IsRegularFile("/dev/null") && !IsDirectory("/dev/null"));
  for (const char* nothing : {"nothing", "broken", "file/below", "nothing/below"}) {
    EXPECT_FALSE(Exists(Path(nothing))) << nothing;
    EXPECT_FALSE(IsRegularFile(Path(nothing))) << nothing;
    EXPECT_FALSE(IsDirectory(Path(nothing))) << nothing;
  }
}

TEST_F(FileTest, WhatCannotBeFoundOutIsAnError) {
  const std::string long_name = Path(std::string(300, 'x'));
  fs::create_symlink("circle", Path("circle"));
  for (const auto& ask : {Exists, IsDirectory, IsRegularFile}) {
    ExpectError({long_name, "too long", "shorter"}, [&] { ask(long_name); });
    ExpectError({Path("circle"), "circle: mend"}, [&] { ask(Path("circle")); });
  }
  if (geteuid() == 0) return;  // who may search everything
  fs::create_directory(Path("closed"));
  fs::permissions(Path("closed"), fs::perms::none);
  for (const auto& ask : {Exists, IsDirectory, IsRegularFile})
    ExpectError(
        {Path("closed/x"), "permissions"}, [&] { ask(Path("closed/x")); }, ExitCode::kResource);
  fs::permissions(Path("closed"), fs::perms::owner_all);
}

// Such as a model's weights, given as a recipe.
TEST_F(FileTest, ATextHasABound) {
  WriteNewFile(Path("huge"), "");
  fs::resize_file(Path("huge"), uintmax_t{1} << 40);  // without a byte on the disk
  ExpectError({Path("huge"), "larger than 4294967296 bytes", "check the path"},
              [&] { ReadTextFile(Path("huge")); });
}

// Whose umask is 022 shares what is whole, not what is being written.
TEST_F(FileTest, AFileIsItsOwnersUntilItIsWhole) {
  const auto mode = [&](const std::string& name) {
    return static_cast<int>(fs::status(Path(name)).permissions() & fs::perms::mask);
  };
  for (const mode_t mask : {0022, 0077, 0002}) {
    const mode_t before = umask(mask);
    {
      FileWriter writer(Path("new"));
      writer.Write("x", 1);
      EXPECT_EQ(mode("new"), 0600);
      writer.Finish();
      EXPECT_EQ(mode("new"), static_cast<int>(0666 & ~mask));
    }
    WriteFileAtomically(Path("new"), "y");
    EXPECT_EQ(mode("new"), static_cast<int>(0666 & ~mask));
    umask(before);
    RemoveFile(Path("new"));
  }
}

// Which somebody else may have made, in a folder that all may write to.
TEST_F(FileTest, ALinkIsNotWrittenThrough) {
  WriteNewFile(Path("precious"), "1");
  for (const char* name : {"link", "state.tmp"}) fs::create_symlink("precious", Path(name));
  ExpectError(
      {Path("link"), "File exists"}, [&] { FileWriter writer(Path("link")); }, ExitCode::kResource);
  ExpectError(
      {Path("link"), "symbolic link", "remove it"}, [&] { FileAppender appender(Path("link")); },
      ExitCode::kResource);
  WriteFileAtomically(Path("state"), "2");
  WriteFileAtomically(Path("link"), "3");
  EXPECT_EQ(ReadTextFile(Path("precious")), "1");
  EXPECT_EQ(ReadTextFile(Path("link")), "3");
}

TEST_F(FileTest, AnUnfinishedFileIsRemoved) {
  { FileWriter(Path("half")).Write("half", 4); }
  EXPECT_EQ(CountFiles(), 0u);
}

TEST_F(FileTest, AnExistingFileIsNotTruncated) {
  WriteFileAtomically(Path("kept"), "kept");
  ExpectError(
      {Path("kept"), "File exists"}, [&] { FileWriter writer(Path("kept")); }, ExitCode::kResource);
  EXPECT_EQ(ReadTextFile(Path("kept")), "kept");
}

TEST_F(FileTest, AtomicWritesReplaceAndLeaveNothingBehind) {
  WriteFileAtomically(Path("state"), "old and longer");
  std::ofstream(Path("state.tmp")) << "left by a killed run";
  WriteFileAtomically(Path("state"), "new");
  EXPECT_EQ(ReadTextFile(Path("state")), "new");
  EXPECT_EQ(CountFiles(), 1u);
  fs::create_directory(Path("folder"));
  ExpectError(
      {Path("folder"), "Is a directory"}, [&] { WriteFileAtomically(Path("folder"), "x"); },
      ExitCode::kResource);
  EXPECT_EQ(CountFiles(), 2u);
  const fs::path before = fs::current_path();  // a path without a folder
  fs::current_path(folder_);
  WriteFileAtomically("state", "newer");
  fs::current_path(before);
  EXPECT_EQ(ReadTextFile(Path("state")), "newer");
}

// The limit on file sizes stands in for a full disk: writes fail at a byte we choose.
TEST_F(FileTest, AFullDiskLeavesTheOldFileWhole) {
  WriteFileAtomically(Path("state"), "old");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ExpectError(
      {Path("state"), "File too large", "ulimit -f"},
      [&] { WriteFileAtomically(Path("state"), std::string(5000, 'x')); }, ExitCode::kResource);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(ReadTextFile(Path("state")), "old");
  EXPECT_EQ(CountFiles(), 1u);
}

}  // namespace
}  // namespace longspan
