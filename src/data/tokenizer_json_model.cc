// Sections of tokenizer.json that hold the tokens: model and decoder.
#include <algorithm>

#include "data/json_fields.h"
#include "data/normalizer.h"
#include "data/tokenizer_json_parts.h"
#include "data/utf8.h"

namespace longspan {
namespace {

using nlohmann::json;

bool IsPrintable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// Code points of the bytes in order, and back: the largest is U+0143.
struct ByteLevelTable {
  ByteLevelTable() {
    std::fill(byte_of, byte_of + kSize, -1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      code_of[byte] = IsPrintable(byte) ? static_cast<char32_t>(byte) : next++;
      byte_of[code_of[byte]] = byte;
    }
  }
  static constexpr size_t kSize = 0x144;
  char32_t code_of[256];
  int byte_of[kSize];
};

const ByteLevelTable& ByteLevel() {
  static const ByteLevelTable table;
  return table;
}

std::vector<std::optional<std::string>> ReadVocabulary(const json& vocab, const std::string& where) {
  Require(vocab.is_object() && !vocab.empty(), "{} is {}; an object from tokens to ids is wanted", where,
          Quoted(vocab));
  std::vector<std::optional<std::string>> tokens;
  for (const auto& [token, value] : vocab.items()) {
    const auto id = static_cast<size_t>(
        JsonFields::CheckedInteger(value, kMaxVocabSize, fmt::format("{}.'{}'", where, token)));
    if (id >= tokens.size()) tokens.resize(id + 1);
    Require(!tokens[id], "{}: the tokens '{}' and '{}' have the same id {}", where, tokens[id].value_or(""),
            token, id);
    tokens[id] = token;
  }
  return tokens;
}

// A merge is "left right" or ["left", "right"].
std::pair<std::string, std::string> ReadMerge(const json& merge, const std::string& where) {
  if (merge.is_string()) {
    const auto text = merge.get<std::string>();
    const size_t space = text.find(' ');
    Require(space != text.npos && text.find(' ', space + 1) == text.npos, "{} is {}; two tokens are wanted",
            where, Quoted(merge));
    return {text.substr(0, space), text.substr(space + 1)};
  }
  Require(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
          "{} is {}; two tokens are wanted", where, Quoted(merge));
  return {merge[0].get<std::string>(), merge[1].get<std::string>()};
}

void ReadMerges(const json& list, const std::unordered_map<std::string, int32_t>& ids,
                const std::string& where, std::vector<BpeSpec::Merge>* merges) {
  Require(list.size() < static_cast<size_t>(kMaxVocabSize), "{} has {} entries; fewer than {} are possible",
          where, list.size(), kMaxVocabSize);
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", where, i);
    const auto [left, right] = ReadMerge(list[i], here);
    Require(!left.empty() && !right.empty(), "{} is {}; a token is empty", here, Quoted(list[i]));
    const auto id_of = [&, &merge = list[i]](const std::string& token) {
      const auto found = ids.find(token);
      Require(found != ids.end(), "{} is {}, but '{}' is not in the vocabulary", here, Quoted(merge), token);
      return found->second;
    };
    merges->push_back({id_of(left), id_of(right), id_of(left + right), static_cast<uint32_t>(i)});
  }
}

void RefuseSetting(JsonFields& fields, const char* key) {
  const json* value = fields.Find(key);
  if (value == nullptr || *value == "" || *value == 0) return;
  throw Error(fmt::format("{} is {}, which is not implemented", fields.Path(key), Quoted(*value)));
}

}  // namespace

std::string ByteLevelSpelling(unsigned char byte) {
  std::string spelling;
  AppendUtf8(ByteLevel().code_of[byte], &spelling);
  return spelling;
}

std::optional<std::string> ByteLevelBytes(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const char32_t code = NextCodePoint(token, &at);
    if (code >= ByteLevelTable::kSize || ByteLevel().byte_of[code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(ByteLevel().byte_of[code]));
  }
  return bytes;
}

std::optional<unsigned char> FallbackByte(std::string_view token) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const size_t high = kDigits.find(token[3]), low = kDigits.find(token[4]);
  if (high == kDigits.npos || low == kDigits.npos) return std::nullopt;
  return static_cast<unsigned char>(16 * high + low);
}

void ReadBpeModel(const json& section, bool byte_level, const std::string& where, BpeSpec* spec,
                  JsonVocabulary* vocabulary) {
  JsonFields fields(section, where);
  const std::string type = fields.String("type", "BPE");
  Require(type == "BPE", "{}: the model '{}' is not implemented", where, type);
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    RefuseSetting(fields, key);
  spec->fuse_unknown = fields.Bool("fuse_unk", false);
  spec->whole_pieces = fields.Bool("ignore_merges", false);
  const bool byte_fallback = fields.Bool("byte_fallback", false);
  const std::string unknown = fields.String("unk_token", "");

  vocabulary->tokens = ReadVocabulary(fields.Get("vocab"), fields.Path("vocab"));
  std::unordered_map<std::string, int32_t> ids;
  for (size_t id = 0; id < vocabulary->tokens.size(); ++id)
    if (vocabulary->tokens[id]) ids.emplace(*vocabulary->tokens[id], static_cast<int32_t>(id));
  const auto id_of = [&](const std::string& token) {
    const auto found = ids.find(token);
    return found == ids.end() ? -1 : found->second;
  };

  ReadMerges(fields.List("merges"), ids, fields.Path("merges"), &spec->merges);
  if (!unknown.empty()) {
    Require(id_of(unknown) >= 0, "{} is '{}', which is not in the vocabulary", fields.Path("unk_token"),
            unknown);
    spec->unknown_id = id_of(unknown);
  }
  if (byte_fallback) {
    Require(!byte_level, "{} beside ByteLevel is not implemented", fields.Path("byte_fallback"));
    spec->byte_ids.emplace();
    for (int byte = 0; byte < 256; ++byte)
      (*spec->byte_ids)[static_cast<size_t>(byte)] = id_of(fmt::format("<0x{:02X}>", byte));
  }
  spec->alphabet = byte_level ? BpeSpec::Alphabet::kBytes : BpeSpec::Alphabet::kCharacters;
  if (!byte_level) {
    spec->ids = std::move(ids);
  } else {
    for (const auto& [token, id] : ids) {
      if (auto bytes = ByteLevelBytes(token)) spec->ids.emplace(*std::move(bytes), id);
    }
    // The others (added tokens that the vocabulary lists too) are spelled by no text.
    std::erase_if(spec->merges, [&](const BpeSpec::Merge& merge) {
      return !ByteLevelBytes(*vocabulary->tokens[static_cast<size_t>(merge.result)]);
    });
  }
  fields.Finish();
}

namespace {

// What a decoder does to single tokens, collected from its steps.
struct DecoderSteps {
  bool byte_level = false, byte_fallback = false, fused = false;
  std::vector<std::pair<std::string, std::string>> replacements;
};

void ReadDecoderStep(const json& section, const std::string& where, DecoderSteps* steps, TokenTexts* texts) {
  JsonFields fields(section, where);
  const std::string type = fields.String("type");
  const auto refuse = [&](bool ok, std::string_view why) {
    Require(ok, "{}: the decoder '{}' {} is not implemented", where, type, why);
  };
  if (type == "Sequence") {
    for (const json& inner : fields.List("decoders")) ReadDecoderStep(inner, where, steps, texts);
  } else if (type == "ByteLevel") {
    refuse(steps->replacements.empty() && !steps->byte_fallback && !steps->fused, "behind others");
    steps->byte_level = true;
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.Skip(key);
  } else if (type == "Replace") {
    JsonFields pattern(fields.Get("pattern"), fields.Path("pattern"));
    const std::string from = pattern.String("String");
    pattern.Finish();
    refuse(!from.empty() && !steps->byte_level && !steps->byte_fallback && !steps->fused, "behind others");
    steps->replacements.emplace_back(from, fields.String("content"));
  } else if (type == "ByteFallback") {
    refuse(!steps->byte_level && !steps->fused, "behind others");
    steps->byte_fallback = true;
  } else if (type == "Fuse") {
    steps->fused = true;
  } else if (type == "Strip") {
    refuse(steps->fused && texts->max_strips == 0, "without Fuse before it");
    texts->strip = fields.String("content");
    texts->max_strips = fields.Integer("start", 1 << 20);
    refuse(!texts->strip.empty() && fields.Integer("stop", 1 << 20) == 0, "at the end of a text");
  } else if (type == "Metaspace") {
    refuse(steps->replacements.empty() && !steps->byte_level && !steps->fused, "behind others");
    steps->replacements.emplace_back(fields.String("replacement"), " ");
    const bool prefix = fields.Bool("add_prefix_space", true);
    texts->drop_spaces = fields.String("prepend_scheme", prefix ? "always" : "never") != "never";
    fields.Skip("split");
    fields.Skip("str_rep");
  } else {
    throw Error(fmt::format("{}: the decoder '{}' is not implemented", where, type));
  }
  fields.Finish();
}

}  // namespace

void ReadDecoder(const json& section, const JsonVocabulary& vocabulary, const std::string& where,
                 TokenTexts* texts) {
  DecoderSteps steps;
  if (section.is_null())
    texts->separator.assign(1, ' ');
  else
    ReadDecoderStep(section, where, &steps, texts);
  texts->bytes.resize(vocabulary.tokens.size());
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.tokens[id]) continue;
    std::string text = *vocabulary.tokens[id];
    for (const auto& [from, to] : steps.replacements) {
      std::string replaced;
      AppendReplaced(text, from, to, &replaced);
      text = std::move(replaced);
    }
    if (steps.byte_level) text = ByteLevelBytes(text).value_or(text);
    if (const auto byte = FallbackByte(text); byte && steps.byte_fallback)
      text = std::string(1, static_cast<char>(*byte));
    texts->bytes[id] = std::move(text);
  }
}

}  // namespace longspan
