// UTF-8: code points one by one, and text that arrives in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longspan {

// Bytes of the character that a byte begins, in valid UTF-8.
inline size_t Utf8Length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point that begins at `*at`, which moves behind it. Of valid UTF-8 only.
inline char32_t NextCodePoint(std::string_view text, size_t* at) {
  const size_t length = Utf8Length(text[*at]);
  char32_t code = static_cast<unsigned char>(text[*at]);
  if (length > 1) code &= 0x7Fu >> length;
  for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[*at + i]) & 0x3Fu);
  *at += length;
  return code;
}

void AppendUtf8(char32_t code_point, std::string* out);

// What begins a text: a whole character, the beginning of one that the text cuts off, or bytes that begin
// none (surrogates, overlong forms and what is above U+10FFFF among them). Invalid bytes are counted as
// Unicode recommends for replacing them: all that could have begun a character are one.
enum class Utf8Kind { kCharacter, kIncomplete, kInvalid };
struct Utf8Prefix {
  Utf8Kind kind;
  size_t size;  // in bytes, at least 1
};
Utf8Prefix ReadUtf8Prefix(std::string_view text);  // of a text that is not empty

// Offset of the first byte that is not valid UTF-8; text.size() if all are.
size_t ValidUtf8Prefix(std::string_view text);

// Throws Error with the offset of the first byte that is not UTF-8.
void RequireUtf8(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace longspan
