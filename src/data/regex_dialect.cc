// Patterns of Oniguruma and of Rust's fancy-regex in PCRE2's words.
//
// What is rewritten, and why: \w, \s, \b and [[:alpha:]] are Unicode's (alphabetic, marks, digits,
// connectors; White_Space) where PCRE2's classes differ in some characters; \h is a hexadecimal digit; ^ and
// $ are of lines in Oniguruma and of the text in Rust; X{2}+ repeats X{2} in Oniguruma but is possessive
// elsewhere; a set within a set is a union.
#include <array>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/names.h"
#include "data/regex.h"
#include "data/utf8.h"

namespace longspan {
namespace {

// Members of sets. White_Space is written out, since PCRE2 finds ranges faster than properties.
constexpr std::string_view kSpaces =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";

class Translator {
 public:
  Translator(std::string_view pattern, RegexDialect dialect, const std::string& where)
      : in_(pattern), dialect_(dialect), where_(where) {}

  std::string Translate() {
    while (at_ < in_.size()) Item();
    return out_;
  }

 private:
  bool IsOniguruma() const { return dialect_ == RegexDialect::kOniguruma; }
  bool Looking(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  [[noreturn]] void Refuse(std::string_view what) const {
    throw Error(fmt::format("{}: the pattern {} has {} at byte {}, which is not implemented", where_,
                            Shortened(in_, 200), what, at_));
  }
  // Characters of \w. Oniguruma's has Latin-1's superscripts and fractions too, but not within a set; Rust's
  // has the joiners.
  std::string_view WordMembers() const {
    return IsOniguruma() ? R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})"
                         : SetWordMembers();
  }
  std::string_view SetWordMembers() const {
    return IsOniguruma() ? R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})"
                         : R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";
  }

  void Item();
  void Escape();
  void OpenGroup();
  void Quantifier();
  void Brace();
  void Literal(char32_t code);

  void Set();
  void SetEscape(std::string* members, bool* not_word, bool* is_class);
  void PosixClass(std::string* members);
  std::string Property();             // at "\p" or "\P": what PCRE2 has for it, outside of a set or within
  char32_t CodePoint(char kind);      // behind "\x" or "\u"
  void Atom(std::string_view text) {  // what a quantifier may follow
    atom_ = out_.size();
    out_ += text;
    last_letter_ = 0;
  }
  void SetOf(std::string_view members, bool negated) {
    Atom(fmt::format("[{}{}]", negated ? "^" : "", members));
  }

  std::string_view in_;
  RegexDialect dialect_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;                              // where the last item begins in out_
  std::vector<std::pair<size_t, bool>> groups_;  // open ones: where they begin, and `caseless_` outside
  bool caseless_ = false;
  char32_t last_letter_ = 0;  // the literal just before, if any
};

void Translator::Item() {
  const char c = in_[at_];
  switch (c) {
    case '\\':
      return Escape();
    case '[':
      return Set();
    case '(':
      return OpenGroup();
    case ')':
      if (groups_.empty()) Refuse("a parenthesis that closes nothing");
      atom_ = groups_.back().first;
      caseless_ = groups_.back().second;
      groups_.pop_back();
      break;
    case '*':
    case '+':
    case '?':
      return Quantifier();
    case '{':
      return Brace();
    case '^':
      Atom(IsOniguruma() ? "(?m:^)" : "\\A");
      ++at_;
      return;
    case '$':
      Atom(IsOniguruma() ? "(?m:$)" : "\\z");
      ++at_;
      return;
    case '|':
    case '.':
      atom_ = out_.size();
      break;
    default:
      return Literal(NextCodePoint(in_, &at_));
  }
  out_ += c;
  last_letter_ = 0;
  ++at_;
}

void Translator::Literal(char32_t code) {
  const char32_t lower = code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
  // Oniguruma also finds one character where its folded form has several: ß for ss, ﬁ for fi.
  if (caseless_ && IsOniguruma()) {
    for (const std::string_view pair : {"ss", "ff", "fi", "fl", "st"}) {
      if (last_letter_ == static_cast<char32_t>(pair[0]) && lower == static_cast<char32_t>(pair[1]))
        Refuse(fmt::format("'{}' regardless of case (as in ß or ﬁ)", pair));
    }
    if (code >= 0x80 && code != 0x2019) Refuse("letters beyond ASCII regardless of case");
  }
  atom_ = out_.size();
  if (code == '}' || code == ']') out_ += '\\';
  AppendUtf8(code, &out_);
  last_letter_ = lower;
}

void Translator::OpenGroup() {
  groups_.emplace_back(out_.size(), caseless_);
  last_letter_ = 0;
  for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
    if (!Looking(opening)) continue;
    caseless_ = caseless_ || opening == "(?i:";
    out_ += opening;
    at_ += opening.size();
    return;
  }
  if (Looking("(?i)") && at_ == 0) {
    groups_.pop_back();
    caseless_ = true;
    out_ += "(?i)";
    at_ += 4;
    return;
  }
  if (Looking("(?") || Looking("(*")) Refuse(fmt::format("a group '{}'", in_.substr(at_, 3)));
  out_ += '(';
  ++at_;
}

void Translator::Quantifier() {
  out_ += in_[at_++];
  if (at_ < in_.size() && (in_[at_] == '?' || in_[at_] == '+')) out_ += in_[at_++];  // lazy, possessive
  last_letter_ = 0;
}

// {n}, {n,}, {n,m}; {,m} in Oniguruma. Any other brace is literal.
void Translator::Brace() {
  size_t end = at_ + 1;
  const auto digits = [&] {
    const size_t begin = end;
    while (end < in_.size() && in_[end] >= '0' && in_[end] <= '9') ++end;
    return in_.substr(begin, end - begin);
  };
  const std::string_view low = digits();
  const bool comma = end < in_.size() && in_[end] == ',';
  if (comma) ++end;
  const std::string_view high = comma ? digits() : low;
  const bool closed = end < in_.size() && in_[end] == '}';
  if (!closed || (low.empty() && (high.empty() || !IsOniguruma()))) {
    ++at_;
    Atom("\\{");
    return;
  }
  at_ = end + 1;
  last_letter_ = 0;
  out_ += comma ? fmt::format("{{{},{}}}", low.empty() ? "0" : low, high) : fmt::format("{{{}}}", low);
  if (at_ == in_.size()) return;
  if (IsOniguruma() && (in_[at_] == '+' || in_[at_] == '*' || (in_[at_] == '?' && !comma))) {
    out_.insert(atom_, "(?:");
    out_ += ')';
  } else if (in_[at_] == '?' || in_[at_] == '+') {
    out_ += in_[at_++];
  }
}

char32_t Translator::CodePoint(char kind) {
  const bool braces = at_ < in_.size() && in_[at_] == '{';
  if (braces) ++at_;
  const size_t most = braces ? 6 : kind == 'x' ? 2 : 4, begin = at_;
  char32_t code = 0;
  for (; at_ < in_.size() && at_ - begin < most; ++at_) {
    const size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(in_[at_] | 0x20));
    if (digit == std::string_view::npos) break;
    code = code * 16 + static_cast<char32_t>(digit);
  }
  if (at_ == begin || code > 0x10FFFF) Refuse("a code point that is none");
  if (braces && (at_ == in_.size() || in_[at_++] != '}')) Refuse("a code point without '}'");
  // There it is a byte, that is, a part of a character.
  if (!braces && kind == 'x' && code >= 0x80 && IsOniguruma()) Refuse("a byte that is no character");
  return code;
}

std::string Translator::Property() {
  const char kind = in_[at_ + 1];
  const size_t end = in_.find('}', at_);
  if (!in_.substr(at_ + 2).starts_with('{') || end == in_.npos) {
    const char name = at_ + 2 < in_.size() ? in_[at_ + 2] : ' ';
    if (IsOniguruma() || std::string_view("LMNPSZC").find(name) == std::string_view::npos)
      Refuse("a property without a name");
    at_ += 3;
    return fmt::format("\\{}{}", kind, name);
  }
  std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
  const bool inverted = name.starts_with('^');
  if (inverted) name.remove_prefix(1);
  const std::string_view letter = inverted == (kind == 'p') ? "P" : "p";
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kNames = {{
      {"Letter", "L"},
      {"Mark", "M"},
      {"Number", "N"},
      {"Punctuation", "P"},
      {"Symbol", "S"},
      {"Separator", "Z"},
      {"Other", "C"},
      {"Alphabetic", "Alphabetic"},
      {"Alpha", "Alphabetic"},
      {"Uppercase", "Uppercase"},
      {"Lowercase", "Lowercase"},
      {"White_Space", "White_Space"},
      {"Digit", "Nd"},
      {"Space", "White_Space"},
  }};
  std::string pcre_name = fmt::format("sc:{}", name);  // a script, or PCRE2 refuses it by its name
  if (name.size() <= 2) pcre_name = name;
  for (const auto& [long_name, short_name] : kNames)
    if (name == long_name) pcre_name = short_name;
  at_ = end + 1;
  return fmt::format("\\{}{{{}}}", letter, pcre_name);
}

void Translator::Escape() {
  if (at_ + 1 == in_.size()) Refuse("a backslash at its end");
  const char c = in_[at_ + 1];
  const std::string word = fmt::format("[{}]", WordMembers());
  switch (c) {
    case 'p':
    case 'P':
      if (Looking("\\p{Word}")) {
        Atom(word);
        at_ += std::string_view("\\p{Word}").size();
        return;
      }
      return Atom(Property());
    case 'x':
    case 'u':
      at_ += 2;
      return Atom(fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(CodePoint(c))));
    case 'w':
    case 'W':
      SetOf(WordMembers(), c == 'W');
      break;
    case 's':
    case 'S':
      SetOf(kSpaces, c == 'S');
      break;
    case 'd':
      Atom("\\p{Nd}");
      break;
    case 'D':
      Atom("\\P{Nd}");
      break;
    case 'h':
    case 'H':
      SetOf(kHexDigits, c == 'H');
      break;
    case 'b':
      Atom(fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word));
      break;
    case 'B':
      Atom(fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word));
      break;
    case 'v':
      Atom("\\x0b");
      break;
    case 'A':
    case 'z':
    case 'Z':
    case 'G':
    case 'n':
    case 'r':
    case 't':
    case 'f':
    case 'a':
    case 'e':
      if (!IsOniguruma() && (c == 'Z' || c == 'e')) Refuse(fmt::format("\\{}", c));
      Atom(in_.substr(at_, 2));
      break;
    default: {
      if (c >= '1' && c <= '9') {
        if (caseless_) Refuse("a reference to a group regardless of case");
        Atom(fmt::format("\\g{{{}}}", c));
        if (at_ + 2 < in_.size() && in_[at_ + 2] >= '0' && in_[at_ + 2] <= '9') Refuse("ten groups or more");
        break;
      }
      if (c == '0' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) Refuse(fmt::format("\\{}", c));
      ++at_;
      const char32_t code = NextCodePoint(in_, &at_);
      if (code >= 0x80) return Literal(code);
      Atom(fmt::format("\\{}", c));
      return;
    }
  }
  at_ += 2;
}

void Translator::PosixClass(std::string* members) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kClasses = {{
      {"[:alpha:]", R"(\p{Alphabetic})"},
      {"[:digit:]", R"(\p{Nd})"},
      {"[:alnum:]", R"(\p{Alphabetic}\p{Nd})"},
      {"[:space:]", kSpaces},
      {"[:upper:]", R"(\p{Uppercase})"},
      {"[:lower:]", R"(\p{Lowercase})"},
  }};
  for (const auto& [name, set] : kClasses) {
    if (!Looking(name)) continue;
    *members += IsOniguruma() || name == "[:space:]" ? set : std::string_view{};
    if (!IsOniguruma()) Refuse("a POSIX class");
    at_ += name.size();
    return;
  }
  Refuse("a POSIX class of an unknown name");
}

void Translator::SetEscape(std::string* members, bool* not_word, bool* is_class) {
  if (at_ + 1 == in_.size()) Refuse("a backslash at its end");
  const char c = in_[at_ + 1];
  *is_class = true;
  switch (c) {
    case 'p':
    case 'P':
      if (Looking("\\p{Word}")) {
        *members += SetWordMembers();
        at_ += std::string_view("\\p{Word}").size();
      } else {
        *members += Property();
      }
      return;
    case 'w':
      *members += SetWordMembers();
      break;
    case 'W':
      *not_word = true;
      break;
    case 's':
      *members += kSpaces;
      break;
    case 'S':
      *members += R"(\P{White_Space})";
      break;
    case 'd':
      *members += R"(\p{Nd})";
      break;
    case 'D':
      *members += R"(\P{Nd})";
      break;
    case 'h':
      *members += kHexDigits;
      break;
    default:
      *is_class = false;
      if (c == 'x' || c == 'u') {
        at_ += 2;
        *members += fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(CodePoint(c)));
        return;
      }
      if (std::string_view("nrtfae").find(c) != std::string_view::npos) {
        *members += in_.substr(at_, 2);
        break;
      }
      if (c == 'v') {
        *members += "\\x0b";
        break;
      }
      if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))
        Refuse(fmt::format("\\{} in a set", c));
      ++at_;
      const char32_t code = NextCodePoint(in_, &at_);
      if (code < 0x80) *members += '\\';
      AppendUtf8(code, members);
      return;
  }
  at_ += 2;
}

void Translator::Set() {
  ++at_;
  const bool negated = Looking("^");
  if (negated) ++at_;
  std::string members;
  bool not_word = false;  // \W is a member
  int depth = 1;
  bool first = true, after_class = false;
  while (depth > 0) {
    if (at_ >= in_.size()) Refuse("a set without end");
    const char c = in_[at_];
    const bool was_class = std::exchange(after_class, false);
    if (Looking("&&") || (!IsOniguruma() && (Looking("--") || Looking("~~"))))
      Refuse("an intersection or difference of sets");
    if (c == ']' && !first) {
      --depth;
      after_class = true;
      ++at_;
    } else if (Looking("[:")) {
      PosixClass(&members);
      after_class = true;
    } else if (c == '[') {
      if (Looking("[^")) Refuse("a negated set within a set");
      ++depth;
      ++at_;
    } else if (c == '\\') {
      SetEscape(&members, &not_word, &after_class);
    } else if (c == '-') {
      // A range, unless it has nothing before or behind it.
      members += first || was_class || Looking("-]") ? "\\-" : "-";
      ++at_;
    } else {
      if (c == ']') members += '\\';
      const char32_t code = NextCodePoint(in_, &at_);
      if (caseless_ && IsOniguruma() && code >= 0x80 && code != 0x2019)
        Refuse("letters beyond ASCII regardless of case");
      AppendUtf8(code, &members);
    }
    first = false;
  }
  if (!not_word) return SetOf(members, negated);
  if (members.empty()) return SetOf(SetWordMembers(), !negated);
  Atom(negated ? fmt::format("(?:(?![{}])[{}])", members, SetWordMembers())
               : fmt::format("(?:[{}]|[^{}])", members, SetWordMembers()));
}

}  // namespace

std::string TranslateRegex(std::string_view pattern, RegexDialect dialect, const std::string& where) {
  const size_t valid = ValidUtf8Prefix(pattern);
  Require(valid == pattern.size(), "{}: the pattern {} is not UTF-8", where, Shortened(pattern, 200));
  return Translator(pattern, dialect, where).Translate();
}

}  // namespace longspan
