#include "data/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "data/utf8.h"

namespace longspan {
namespace {

std::string Normalized(std::string_view text, NormalForm form) {
  std::string out;
  AppendNormalized(text, form, &out);
  return out;
}

// utf8proc's own, on a whole text.
std::string Reference(const std::string& text, NormalForm form) {
  const auto* units = reinterpret_cast<const utf8proc_uint8_t*>(text.c_str());
  utf8proc_uint8_t* result = form == NormalForm::kNfc    ? utf8proc_NFC(units)
                             : form == NormalForm::kNfd  ? utf8proc_NFD(units)
                             : form == NormalForm::kNfkc ? utf8proc_NFKC(units)
                                                         : utf8proc_NFKD(units);
  const std::string out = reinterpret_cast<const char*>(result);
  std::free(result);
  return out;
}

TEST(NormalForms, EqualThoseOfTheWholeText) {
  std::mt19937 random(1);
  // Letters, marks of several classes, Hangul in parts, compatibility characters, ASCII between.
  const std::u32string alphabet =
      U"aAeo <\n\u00e9\u1e69\u0301\u0323\u0307\u0327\u0345\u1100\u1161\u11a8\uac00"
      U"\ufb01\u2460\u00b2\uff21\u212b\u0958\u2126\u4e2d\U0001d15f\U0001f469";
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (size_t length = random() % 12; length > 0; --length)
      AppendUtf8(alphabet[random() % alphabet.size()], &text);
    for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd})
      EXPECT_EQ(Normalized(text, form), Reference(text, form)) << testing::PrintToString(text);
  }
}

TEST(NormalForms, ALongRunOfMarksIsNoTrap) {
  std::string text = "a", sorted = "a";
  for (int i = 0; i < 100000; ++i) text += "\u0301\u0323";  // classes 230, 220
  for (int i = 0; i < 100000; ++i) sorted += "\u0323";
  for (int i = 0; i < 100000; ++i) sorted += "\u0301";
  EXPECT_EQ(Normalized(text, NormalForm::kNfd), sorted);
}

TEST(Classes, AreUnicodes) {
  for (const char32_t space : {0x9, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x202F, 0x205F, 0x3000})
    EXPECT_TRUE(IsWhiteSpace(space)) << static_cast<uint32_t>(space);
  for (const char32_t other : {0x8, 0xE, 0x1C, 0x180E, 0x200B, 0xFEFF, 0x41})
    EXPECT_FALSE(IsWhiteSpace(other)) << static_cast<uint32_t>(other);
  for (const char32_t word : {U'a', U'Z', U'7', U'_', U'\u00e9', U'\u0301', U'\u4e2d', U'\u0663', U'\u2160',
                              U'\u24b6', U'\u203f', U'\u200d'})
    EXPECT_TRUE(IsWord(word)) << static_cast<uint32_t>(word);
  for (const char32_t other : {U' ', U'-', U'\u00b2', U'\u2460', U'\u2028', U'\U0001f469'})
    EXPECT_FALSE(IsWord(other)) << static_cast<uint32_t>(other);
  EXPECT_TRUE(ToLower(U'\u00c9') == U'\u00e9');
  EXPECT_TRUE(ToLower(U'\u00df') == U'\u00df');
}

}  // namespace
}  // namespace longspan
