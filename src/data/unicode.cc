#include "data/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "core/check.h"
#include "data/utf8.h"

namespace longspan {
namespace {

bool IsAscii(char c) { return static_cast<unsigned char>(c) < 0x80; }

int CombiningClass(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// utf8proc itself sorts marks by swapping neighbours, which takes quadratic time for a long run of them.
void SortMarks(std::vector<utf8proc_int32_t>& codes) {
  const auto is_mark = [](utf8proc_int32_t code) { return CombiningClass(code) != 0; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), is_mark);
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::stable_sort(begin, end, [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    begin = end;
  }
}

// A stretch that nothing outside of it composes with.
void AppendStretch(std::string_view text, NormalForm form, std::string* out) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  constexpr size_t kMaxDecomposed = 32;  // code points of one; the longest has 18
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size() + kMaxDecomposed);
  for (size_t at = 0; at < text.size();) {
    const auto code = static_cast<utf8proc_int32_t>(NextCodePoint(text, &at));
    const size_t size = codes.size();
    codes.resize(size + kMaxDecomposed);
    const utf8proc_ssize_t added =
        utf8proc_decompose_char(code, codes.data() + size, kMaxDecomposed, options, nullptr);
    CHECK(added >= 0 && added <= static_cast<utf8proc_ssize_t>(kMaxDecomposed));
    codes.resize(size + static_cast<size_t>(added));
  }
  SortMarks(codes);
  if (compose) {
    const utf8proc_ssize_t size =
        utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    CHECK(size >= 0);
    codes.resize(static_cast<size_t>(size));
  }
  for (const utf8proc_int32_t code : codes) AppendUtf8(static_cast<char32_t>(code), out);
}

}  // namespace

bool IsWhiteSpace(char32_t code) {
  return (code >= '\t' && code <= '\r') || code == ' ' || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

bool IsWord(char32_t code) {
  if (code == 0x200C || code == 0x200D) return true;
  // Letters in circles and squares are symbols, but alphabetic.
  if ((code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
      (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189))
    return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

char32_t ToLower(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

void AppendNormalized(std::string_view text, NormalForm form, std::string* out) {
  // ASCII stays as it is, and composes at most with what is behind it.
  size_t done = 0;
  while (done < text.size()) {
    const auto here = text.begin() + static_cast<std::ptrdiff_t>(done);
    const auto other = std::find_if_not(here, text.end(), IsAscii);
    const auto begin = other == here || other == text.end() ? other : other - 1;
    const auto end = std::find_if(other, text.end(), IsAscii);
    out->append(here, begin);
    if (begin != end) AppendStretch({begin, end}, form, out);
    done = static_cast<size_t>(end - text.begin());
  }
}

}  // namespace longspan
