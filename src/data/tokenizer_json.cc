#include "data/tokenizer_json.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "core/file.h"
#include "data/json_fields.h"
#include "data/tokenizer_json_parts.h"

namespace longspan {
namespace {

using nlohmann::json;

constexpr size_t kMostBytes = 100'000'000;  // of the largest in use: 35 MB

AddedToken ReadAddedToken(const json& entry, const std::string& where) {
  JsonFields fields(entry, where);
  AddedToken token;
  token.id = static_cast<int32_t>(fields.Integer("id", kMaxVocabSize));
  token.content = fields.String("content");
  token.special = fields.Bool("special");
  token.normalized = fields.Bool("normalized");
  token.single_word = fields.Bool("single_word");
  token.left_strip = fields.Bool("lstrip");
  token.right_strip = fields.Bool("rstrip");
  fields.Finish();
  Require(!token.content.empty(), "{} is empty", where);
  return token;
}

// Added tokens that the vocabulary lacks come behind it, in the order of the file: that is how Hugging Face's
// library numbers them, whatever the file says, so another number in it would mean other ids here and there.
void ReadAddedTokens(const json& list, const std::string& where, JsonVocabulary* vocabulary,
                     std::vector<AddedToken>* added) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < vocabulary->tokens.size(); ++id)
    if (vocabulary->tokens[id]) ids.emplace(*vocabulary->tokens[id], static_cast<int32_t>(id));
  const auto model_size = static_cast<int32_t>(ids.size());
  int32_t next = model_size;
  std::set<std::string> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", where, i);
    const AddedToken token = ReadAddedToken(list[i], here);
    Require(seen.insert(token.content).second, "{}: the token '{}' is added twice", here, token.content);
    const auto known = ids.find(token.content);
    const int32_t expected = known == ids.end() ? next : known->second;
    Require(token.id == expected,
            "{}: the token '{}' has id {}, but Hugging Face's library would number it {}; correct the file",
            here, token.content, token.id, expected);
    next = std::max(next, token.id + 1);
    added->push_back(token);
  }
  // Only now, since `ids` looks into the strings.
  for (const AddedToken& token : *added) {
    const auto id = static_cast<size_t>(token.id);
    if (id >= vocabulary->tokens.size()) vocabulary->tokens.resize(id + 1);
    std::optional<std::string>& place = vocabulary->tokens[id];
    Require(!place || *place == token.content,
            "{}: the token '{}' has id {}, which is '{}' in the vocabulary", where, token.content, id,
            place.value_or(""));
    place = token.content;
  }
}

}  // namespace

std::unique_ptr<Tokenizer> ParseTokenizerJson(std::string_view text, const std::string& where) {
  Require(text.size() <= kMostBytes, "{}: it has {} bytes; {} are the most that such a file has", where,
          text.size(), kMostBytes);
  const json file = ParseJson(text, where);
  JsonFields fields(file, where);
  const json none;
  const auto section = [&](const char* key) -> const json& {
    const json* found = fields.Find(key);
    return found == nullptr ? none : *found;
  };
  const std::string version = fields.String("version", "1.0");
  Require(version == "1.0", "{}.version is {}; 1.0 is wanted", where, version);
  for (const char* key : {"truncation", "padding"})
    Require(fields.Find(key) == nullptr, "{}.{} is set, which is not implemented; set it to null", where,
            key);

  BpeTokenizerParts parts;
  JsonVocabulary vocabulary;
  ReadNormalizer(section("normalizer"), fields.Path("normalizer"), &parts.normalizer);
  const bool byte_level =
      ReadPretokenizer(section("pre_tokenizer"), fields.Path("pre_tokenizer"), &parts.pretokenizer);
  ReadPostprocessor(section("post_processor"), fields.Path("post_processor"), &parts);
  ReadBpeModel(fields.Get("model"), byte_level, fields.Path("model"), &parts.bpe, &vocabulary);
  ReadDecoder(section("decoder"), vocabulary, fields.Path("decoder"), &parts.texts);
  if (fields.Find("added_tokens") != nullptr)
    ReadAddedTokens(fields.List("added_tokens"), fields.Path("added_tokens"), &vocabulary,
                    &parts.added_tokens);
  fields.Finish();

  parts.texts.bytes.resize(vocabulary.tokens.size());
  for (const AddedToken& token : parts.added_tokens)
    parts.texts.bytes[static_cast<size_t>(token.id)] = token.content;
  for (const auto& ids : {parts.document_prefix, parts.document_suffix}) {
    for (const int32_t id : ids)
      Require(
          static_cast<size_t>(id) < vocabulary.tokens.size() && vocabulary.tokens[static_cast<size_t>(id)],
          "{}.post_processor adds the id {}, which is no token", where, id);
  }
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> OpenTokenizerJson(const std::string& path) {
  return ParseTokenizerJson(MappedFile(path).text(), path);
}

}  // namespace longspan
