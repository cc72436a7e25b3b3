// Classes of characters and normal forms, as Unicode defines them (utf8proc's tables).
#pragma once

#include <string>
#include <string_view>

namespace longspan {

bool IsWhiteSpace(char32_t code);  // the property White_Space
bool IsWord(char32_t code);        // alphabetic, a mark, a decimal digit, a connector or a joiner: Rust's \w
char32_t ToLower(char32_t code);   // of one character to one

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Appends a text of valid UTF-8 in that form. Time is linear but for sorting marks, O(m log m) for m in a
// row.
void AppendNormalized(std::string_view text, NormalForm form, std::string* out);

}  // namespace longspan
