#include "data/files.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::TemporaryDirectory;
using testing::WriteText;

std::string Taken(const std::string& filter, const std::vector<std::string>& paths) {
  const PathFilter path_filter(filter);
  std::string taken;
  for (const std::string& path : paths)
    if (path_filter.Takes(path)) taken += path + " ";
  return taken;
}

TEST(PathFilter, TakesAndLeavesOut) {
  const std::vector<std::string> paths = {"a.c",         "b.h",       "README",  "d/a.c",
                                          "d/tests/x.c", "tests/y.c", "d/e/f.cc"};
  EXPECT_EQ(Taken("", paths), "a.c b.h README d/a.c d/tests/x.c tests/y.c d/e/f.cc ");
  EXPECT_EQ(Taken("*.c", paths), "a.c d/a.c d/tests/x.c tests/y.c ");
  EXPECT_EQ(Taken("*.h, *.cc", paths), "b.h d/e/f.cc ");
  EXPECT_EQ(Taken("!*.c", paths), "b.h README d/e/f.cc ");
  EXPECT_EQ(Taken("*.c,!a.*", paths), "d/tests/x.c tests/y.c ");
  EXPECT_EQ(Taken("d/*", paths), "d/a.c d/tests/x.c d/e/f.cc ");
  EXPECT_EQ(Taken("*.c,!*/tests/*", paths), "a.c d/a.c ");
  EXPECT_EQ(Taken("[ab].?", paths), "a.c b.h d/a.c ");
  EXPECT_EQ(Taken("/a.c", paths), "a.c ");
  EXPECT_EQ(Taken("tests", paths), "");
}

TEST(PathFilter, EmptyPatternsAreRefused) {
  for (const char* filter : {",", "*.c,", "!", "*.c,,*.h", " "})
    ExpectError(
        {"data_path_filter", filter, "empty pattern"}, [&] { PathFilter{filter}; }, ExitCode::kUsage);
}

TEST(FileHeader, NamesTheFile) {
  EXPECT_EQ(FileHeader("").For("a.c"), "");
  EXPECT_EQ(FileHeader("// FILE: {path}").For("d/a.c"), "// FILE: d/a.c\n");
  EXPECT_EQ(FileHeader("// FILE: {path}\\n").For("d/a.c"), "// FILE: d/a.c\n");
  EXPECT_EQ(FileHeader("\n{path}\\t{path} {} {a-b} }\n\n").For("x"), "\nx\tx {} {a-b} }\n\n");
  ExpectError(
      {"data_file_header", "{name}", "{path}"}, [] { FileHeader{"# {name}"}; }, ExitCode::kUsage);
}

TEST(ListDataFiles, FilterAndSizes) {
  TemporaryDirectory folder;
  WriteText(folder / "d/b.c", "12345");
  WriteText(folder / "d/a/x.c", "123");
  WriteText(folder / "d/a/x.h", "1");
  WriteText(folder / "d/.hidden.c", "1");
  const DataFiles list = ListDataFiles(folder / "d", "*.c");
  EXPECT_TRUE(list.is_folder);
  ASSERT_EQ(list.files.size(), 2u);
  EXPECT_EQ(list.files[0].path, folder / "d/a/x.c");
  EXPECT_EQ(list.files[0].relative_path, "a/x.c");
  EXPECT_EQ(list.files[1].relative_path, "b.c");
  EXPECT_EQ(list.total_bytes(), 8);
  EXPECT_EQ(list.num_left_out, 1);
  EXPECT_EQ(ListDataFiles(folder / "d/", "*.c").files[0].relative_path, "a/x.c");
  EXPECT_EQ(ListDataFiles(folder / "d/../d", "*.c").files[0].relative_path, "a/x.c");
  ExpectError(
      {"data_path_filter '*.py' takes none of the 3 files below"},
      [&] { ListDataFiles(folder / "d", "*.py"); }, ExitCode::kUsage);
  const DataFiles one = ListDataFiles(folder / "d/b.c", "");
  EXPECT_FALSE(one.is_folder);
  EXPECT_EQ(one.files[0].relative_path, "b.c");
  EXPECT_EQ(one.total_bytes(), 5);
}

TEST(RequireFolderFor, OptionsNeedAFolder) {
  TemporaryDirectory folder;
  const std::string file = WriteText(folder / "a.txt", "x");
  DataOptions options;
  RequireFolderFor(options, {file});
  options.data_file_header = "x";
  RequireFolderFor(options, {file, folder.path()});
  ExpectError(
      {"data_file_header is set", file}, [&] { RequireFolderFor(options, {file}); }, ExitCode::kUsage);
  options = {};
  options.data_document = "repository";
  ExpectError(
      {"data_document is set"}, [&] { RequireFolderFor(options, {file}); }, ExitCode::kUsage);
  options = {};
  options.data_path_filter = "*";
  ExpectError(
      {"data_path_filter is set"}, [&] { RequireFolderFor(options, {file}); }, ExitCode::kUsage);
}

}  // namespace
}  // namespace longspan
