#include "data/utf8.h"

#include <cstring>

#include "core/check.h"

namespace longspan {

void AppendUtf8(char32_t code, std::string* out) {
  const auto append = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  const auto continuation = [&](int shift) { append(0x80u | (code >> shift & 0x3Fu)); };
  if (code < 0x80) {
    append(code);
  } else if (code < 0x800) {
    append(0xC0u | code >> 6);
    continuation(0);
  } else if (code < 0x10000) {
    append(0xE0u | code >> 12);
    continuation(6);
    continuation(0);
  } else {
    append(0xF0u | code >> 18);
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

Utf8Prefix ReadUtf8Prefix(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {Utf8Kind::kCharacter, 1};
  if (first < 0xC2 || first > 0xF4) return {Utf8Kind::kInvalid, 1};
  // The second byte's range excludes overlong forms, surrogates and code points that are too large.
  const size_t length = Utf8Length(text[0]);
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {Utf8Kind::kInvalid, i};
  }
  return {Utf8Kind::kCharacter, length};
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight;
    if (at + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    const Utf8Prefix prefix = ReadUtf8Prefix(text.substr(at));
    if (prefix.kind != Utf8Kind::kCharacter) return at;
    at += prefix.size;
  }
  return at;
}

void RequireUtf8(std::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  Require(valid == text.size(), "not UTF-8 at byte {} of the text (0x{:02X}); convert it to UTF-8", valid,
          static_cast<unsigned char>(text[std::min(valid, text.size() - 1)]));
}

}  // namespace longspan
