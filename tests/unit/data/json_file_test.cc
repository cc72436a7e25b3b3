#include "data/json_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::WriteText;

TEST(ReadJsonFile, ReadsSettingsAndRefusesData) {
  const testing::TemporaryDirectory directory;
  const std::string path = WriteText(directory / "a.json", R"({"a": 1})");
  EXPECT_EQ(ReadJsonFile(path)["a"], 1);
  WriteText(path, "{");
  ExpectError({path, "not valid JSON"}, [&] { ReadJsonFile(path); });
  std::filesystem::resize_file(path, uintmax_t{1} << 40);  // without a byte on the disk
  ExpectError({path, "1099511627776 bytes", "100000000"}, [&] { ReadJsonFile(path); });
  ExpectError({directory / "none", "No such file"}, [&] { ReadJsonFile(directory / "none"); });
}

}  // namespace
}  // namespace longspan
