#include "data/bpe_tokenizer.h"

#include <algorithm>

#include "core/check.h"
#include "data/utf8.h"

namespace longspan {

struct BpeTokenizer::Workspace {
  Bpe::Scratch bpe;
  Regex::Scratch regex;
  std::string normalized;
};

BpeTokenizer::BpeTokenizer(BpeTokenizerParts parts)
    : bpe_(std::move(parts.bpe)),
      normalizer_(std::move(parts.normalizer)),
      pretokenizer_(std::move(parts.pretokenizer)),
      texts_(std::move(parts.texts)),
      document_prefix_(std::move(parts.document_prefix)),
      document_suffix_(std::move(parts.document_suffix)) {
  Regex::Scratch scratch;
  // Special ones first: of equal strings the first counts.
  std::stable_partition(parts.added_tokens.begin(), parts.added_tokens.end(),
                        [](const AddedToken& token) { return token.special; });
  for (const AddedToken& token : parts.added_tokens) {
    std::string buffer;
    if (token.normalized)
      in_normalized_text_.Add(token, normalizer_.Normalize(token.content, scratch, &buffer));
    else
      in_text_.Add(token, token.content);
  }
}

BpeTokenizer::~BpeTokenizer() = default;

std::vector<int32_t> BpeTokenizer::DoEncode(std::string_view text, bool special_is_text) const {
  RequireUtf8(text);
  std::unique_ptr<Workspace> workspace = workspaces_.Take();
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4);
  const Pretokenizer::Sink encode = [&](std::string_view piece) { bpe_.Encode(piece, workspace->bpe, &ids); };
  using Part = AddedTokenFinder::Part;
  for (const Part& part : in_text_.Separate(text, special_is_text)) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
      continue;
    }
    const bool begins_text = part.text.data() == text.data();
    const std::string_view normalized =
        normalizer_.Normalize(part.text, workspace->regex, &workspace->normalized);
    for (const Part& inner : in_normalized_text_.Separate(normalized, special_is_text)) {
      if (inner.token != nullptr)
        ids.push_back(inner.token->id);
      else
        pretokenizer_.Cut(inner.text, begins_text && inner.text.data() == normalized.data(), workspace->regex,
                          encode);
    }
  }
  workspaces_.Give(std::move(workspace));
  return ids;
}

void BpeTokenizer::AppendToken(int32_t id, bool is_first, std::string* bytes) const {
  Require(id >= 0 && id < vocab_size() && texts_.bytes[static_cast<size_t>(id)],
          "id {} is no token; the tokenizer's ids are below {}", id, vocab_size());
  std::string_view text = *texts_.bytes[static_cast<size_t>(id)];
  if (!is_first) {
    bytes->append(texts_.separator);
    bytes->append(text);
    return;
  }
  for (int64_t i = 0; i < texts_.max_strips && text.starts_with(texts_.strip); ++i)
    text.remove_prefix(texts_.strip.size());
  for (const char c : text)
    if (c != ' ' || !texts_.drop_spaces) bytes->push_back(c);
}

}  // namespace longspan
