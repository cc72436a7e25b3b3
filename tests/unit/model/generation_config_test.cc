#include "model/generation_config.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::WriteText;

TEST(EosTokens, ComeFromTheGenerationConfigFirst) {
  const testing::TemporaryDirectory directory;
  const std::string config = directory / "config.json", generation = directory / "generation_config.json";
  const auto tokens = [&] { return EosTokens(directory.path(), 10); };
  EXPECT_TRUE(tokens().empty());
  WriteText(config, R"({"eos_token_id": 3})");
  EXPECT_EQ(tokens(), std::vector<int32_t>{3});
  WriteText(generation, R"({"temperature": 0.6})");
  EXPECT_EQ(tokens(), std::vector<int32_t>{3});
  WriteText(generation, R"({"eos_token_id": null})");
  EXPECT_EQ(tokens(), std::vector<int32_t>{3});
  WriteText(generation, R"({"eos_token_id": [5, 7]})");
  EXPECT_EQ(tokens(), (std::vector<int32_t>{5, 7}));
  for (const char* bad : {"10", "-1", "\"a\"", "[1, 10]", "[[1]]", "1.5"}) {
    WriteText(generation, fmt::format(R"({{"eos_token_id": {}}})", bad));
    ExpectError({"generation_config.json", "eos_token_id", "ids from 0 to 9"}, tokens);
  }
}

}  // namespace
}  // namespace longspan
