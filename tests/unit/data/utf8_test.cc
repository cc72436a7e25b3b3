#include "data/utf8.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace longspan {
namespace {

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t code = 0; code <= 0x10FFFF; code += code < 0x1000 ? 1 : 7) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text = "<";
    AppendUtf8(code, &text);
    size_t at = 1;
    EXPECT_TRUE(NextCodePoint(text, &at) == code) << static_cast<uint32_t>(code);
    EXPECT_EQ(at, text.size());
    EXPECT_EQ(ValidUtf8Prefix(text), text.size());
    const Utf8Prefix prefix = ReadUtf8Prefix(text.substr(1));
    EXPECT_EQ(prefix.kind, Utf8Kind::kCharacter);
    EXPECT_EQ(prefix.size, text.size() - 1);
  }
}

TEST(Utf8, WhatBeginsNoCharacter) {
  struct Case {
    std::string_view text;
    Utf8Kind kind;
    size_t size;
  };
  for (const Case& c :
       {Case{"\x80", Utf8Kind::kInvalid, 1}, Case{"\xC1\x81", Utf8Kind::kInvalid, 1},
        Case{"\xE0\x9F\x80", Utf8Kind::kInvalid, 1},      // overlong
        Case{"\xED\xA0\x80", Utf8Kind::kInvalid, 1},      // a surrogate
        Case{"\xF4\x90\x80\x80", Utf8Kind::kInvalid, 1},  // above U+10FFFF
        Case{"\xF5\x80\x80\x80", Utf8Kind::kInvalid, 1},
        Case{"\xE4\xB8"
             "a",
             Utf8Kind::kInvalid, 2},  // what could have begun one is one
        Case{"\xF0\x9F\xA6\xFF", Utf8Kind::kInvalid, 3}, Case{"\xC3", Utf8Kind::kIncomplete, 1},
        Case{"\xF0\x9F\xA6", Utf8Kind::kIncomplete, 3}, Case{"\xED\x9F\xBF", Utf8Kind::kCharacter, 3},
        Case{"\xF4\x8F\xBF\xBF", Utf8Kind::kCharacter, 4}}) {
    const Utf8Prefix prefix = ReadUtf8Prefix(c.text);
    EXPECT_EQ(prefix.kind, c.kind) << ::testing::PrintToString(c.text);
    EXPECT_EQ(prefix.size, c.size) << ::testing::PrintToString(c.text);
  }
}

TEST(Utf8, RefusalsSayWhere) {
  const std::string ascii(100, 'a');
  EXPECT_NO_THROW(RequireUtf8(ascii));
  EXPECT_NO_THROW(RequireUtf8(""));
  longspan::testing::ExpectError({"byte 100", "0xFF"}, [&] { RequireUtf8(ascii + "\xFF" + ascii); });
  longspan::testing::ExpectError({"byte 100", "0xE4"}, [&] { RequireUtf8(ascii + "\xE4\xB8"); });
}

}  // namespace
}  // namespace longspan
