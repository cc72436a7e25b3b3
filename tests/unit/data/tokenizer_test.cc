#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace longspan {
namespace {

TEST(ByteTokenizer, EveryByteIsItsValue) {
  const auto tokenizer = MakeByteTokenizer();
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  const std::vector<int32_t> ids = tokenizer->Encode(text);
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
  EXPECT_EQ(tokenizer->Decode(ids), text);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_TRUE(tokenizer->Encode("").empty());
}

TEST(ByteTokenizer, RefusesIdsThatAreNoBytes) {
  const auto tokenizer = MakeByteTokenizer();
  for (const int32_t id : {-1, 256})
    testing::ExpectError({std::to_string(id), "255"}, [&] {
      tokenizer->Decode(std::vector<int32_t>{65, id});
    });
}

}  // namespace
}  // namespace longspan
