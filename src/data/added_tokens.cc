#include "data/added_tokens.h"

#include "data/unicode.h"
#include "data/utf8.h"

namespace longspan {
namespace {

char32_t LastCodePoint(std::string_view text, size_t* begin) {
  *begin = text.size() - 1;
  while (*begin > 0 && (static_cast<unsigned char>(text[*begin]) & 0xC0u) == 0x80) --*begin;
  size_t at = *begin;
  return NextCodePoint(text, &at);
}

bool EndsWithWord(std::string_view text) {
  size_t begin = 0;
  return !text.empty() && IsWord(LastCodePoint(text, &begin));
}

bool StartsWithWord(std::string_view text) {
  size_t at = 0;
  return !text.empty() && IsWord(NextCodePoint(text, &at));
}

size_t LeadingWhiteSpace(std::string_view text) {
  size_t size = 0;
  for (size_t at = 0; at < text.size() && IsWhiteSpace(NextCodePoint(text, &at));) size = at;
  return size;
}

size_t TrailingWhiteSpace(std::string_view text) {
  size_t end = text.size();
  for (size_t begin = 0; end > 0 && IsWhiteSpace(LastCodePoint(text.substr(0, end), &begin));) end = begin;
  return text.size() - end;
}

}  // namespace

void AddedTokenFinder::Add(const AddedToken& token, std::string_view content) {
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    uint64_t child = children_.Get(node, byte);
    if (child == PairTable::kNone) {
      child = tokens_at_.size();
      children_.Set(node, byte, child);
      tokens_at_.push_back(-1);
    }
    node = static_cast<uint32_t>(child);
  }
  if (node == 0 || tokens_at_[node] >= 0) return;
  tokens_at_[node] = static_cast<int64_t>(tokens_.size());
  tokens_.push_back(token);
}

const AddedToken* AddedTokenFinder::Longest(std::string_view text, size_t* length) const {
  const AddedToken* longest = nullptr;
  uint64_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = children_.Get(static_cast<uint32_t>(node), static_cast<unsigned char>(text[i]));
    if (node == PairTable::kNone) break;
    if (tokens_at_[node] < 0) continue;
    longest = &tokens_[static_cast<size_t>(tokens_at_[node])];
    *length = i + 1;
  }
  return longest;
}

std::vector<AddedTokenFinder::Part> AddedTokenFinder::Separate(std::string_view text,
                                                               bool special_is_text) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t at = 0, length = 0; at < text.size() && !empty();) {
    const AddedToken* token = Longest(text.substr(at), &length);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    if (special_is_text && token->special) continue;
    if (token->single_word && (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end))))
      continue;
    if (token->left_strip) begin = std::max(begin - TrailingWhiteSpace(text.substr(0, begin)), done);
    if (token->right_strip) end += LeadingWhiteSpace(text.substr(end));
    if (done < begin) parts.push_back({text.substr(done, begin - done), nullptr});
    parts.push_back({text.substr(begin, end - begin), token});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), nullptr});
  return parts;
}

}  // namespace longspan
