#include "data/regex.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace longspan {
namespace {

using Pieces = std::vector<std::string>;

Pieces Matches(std::string_view pattern, std::string_view text,
               RegexDialect dialect = RegexDialect::kOniguruma) {
  const Regex regex(pattern, dialect, "test");
  Regex::Scratch scratch;
  RegexMatches matches(regex, text, scratch);
  Pieces pieces;
  for (Regex::Match match; matches.Next(&match);)
    pieces.emplace_back(text.substr(match.begin, match.end - match.begin));
  return pieces;
}

TEST(Regex, DialectsDiffer) {
  const RegexDialect rust = RegexDialect::kRust;
  // A bounded repetition with + is repeated in one, possessive in the other.
  EXPECT_EQ(Matches("a{2}+", "aaaaa"), (Pieces{"aaaa"}));
  EXPECT_EQ(Matches("a{1,2}+a", "aa", rust), (Pieces{}));
  EXPECT_EQ(Matches("(?:ab){2}?", "abab"), (Pieces{"abab"}));
  EXPECT_EQ(Matches("a{,2}b", "aab"), (Pieces{"aab"}));
  EXPECT_EQ(Matches("^b$", "a\nb\nc"), (Pieces{"b"}));
  EXPECT_EQ(Matches("^b$", "a\nb\nc", rust), (Pieces{}));
  EXPECT_EQ(Matches("c$", "c\n", rust), (Pieces{}));
  EXPECT_EQ(Matches("\\w", "\u00b2\u200d\u24b6"), (Pieces{"\u00b2", "\u24b6"}));
  EXPECT_EQ(Matches("\\w", "\u00b2\u200d\u24b6", rust), (Pieces{"\u200d", "\u24b6"}));
  EXPECT_EQ(Matches("[\\w]", "\u00b2a"), (Pieces{"a"}));
}

TEST(Regex, ClassesAreUnicodes) {
  EXPECT_EQ(Matches("\\s", " \u180e\u0085\u3000\x1c"), (Pieces{" ", "\u0085", "\u3000"}));
  EXPECT_EQ(Matches("\\h+", "xfF0 g"), (Pieces{"fF0"}));
  EXPECT_EQ(Matches("\\d+", "1\u0663a"), (Pieces{"1\u0663"}));
  EXPECT_EQ(Matches("e\\b", "e\u0301 e-"), (Pieces{"e"})) << "a mark goes on with the word";
  EXPECT_EQ(Matches("\\p{Han}+|\\p{^L}", "\u4e2d\u3001a"), (Pieces{"\u4e2d", "\u3001"}))
      << "the script itself";
  EXPECT_EQ(Matches("(?i:'s|k)", "'\u017f\u212a'S"), (Pieces{"'\u017f", "\u212a", "'S"}));
  EXPECT_EQ(Matches("[^\\s[.,]]+", "ab c.d"), (Pieces{"ab", "c", "d"}));
  EXPECT_EQ(Matches("[\\W_]+|[^\\Wx]", "a_!x"), (Pieces{"a", "_!"}));
  EXPECT_EQ(Matches("[]a-]+", "]-ab"), (Pieces{"]-a"}));
}

TEST(Regex, EmptyMatchesFollowNoOther) {
  EXPECT_EQ(Matches("a*", "baa\u00e9"), (Pieces{"", "aa", ""}));
  EXPECT_EQ(Matches("", ""), (Pieces{""}));
}

TEST(Regex, RefusesWhatWouldMatchOtherwise) {
  for (const auto& [pattern, part] :
       std::initializer_list<std::pair<std::string_view, std::string_view>>{{"[a-z&&[^c]]", "intersection"},
                                                                            {"[a[^b]]", "negated set"},
                                                                            {"(?m:a)", "(?m"},
                                                                            {"(?<name>a)", "(?<"},
                                                                            {"a(?i)b", "(?i"},
                                                                            {"(?i:strasse)", "'st'"},
                                                                            {"\\R", "\\R"},
                                                                            {"\\k<a>", "\\k"},
                                                                            {"\\p{Klingon}", "Klingon"},
                                                                            {"[a", "without end"},
                                                                            {"(a", "parenthes"},
                                                                            {"a)", "parenthes"},
                                                                            {"\\", "backslash"},
                                                                            {"[z-a]", "range"},
                                                                            {"\\x{110000}", "code point"},
                                                                            {"[[:punct:]]", "POSIX"}})
    testing::ExpectError({"test", part}, [&, &p = pattern] { Regex(p, RegexDialect::kOniguruma, "test"); });
}

// Groups that repeat need stack; runs of one class need time for each place where a match might end.
TEST(Regex, LongTextsAreNoTrap) {
  const size_t length = 300000;
  const std::string spaces(length, ' '), letters(length, 'A');
  EXPECT_EQ(Matches("\\s+(?!\\S)|\\s", spaces + "x").size(), 2u);
  EXPECT_EQ(Matches("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+|\\S", spaces + "x").size(), 3u);
  EXPECT_EQ(Matches("[A-Z]*[a-z]+|[A-Z]+", letters).size(), 1u);
  std::string marked;
  for (size_t i = 0; i < length; ++i) marked += "e\u0301";
  EXPECT_EQ(Matches("(?:\\p{L}\\p{M}*)+", marked), Pieces{marked});
  EXPECT_EQ(Matches("(?:(a)|b|\\p{Lu})+c", letters + "c").size(), 1u);
}

}  // namespace
}  // namespace longspan
