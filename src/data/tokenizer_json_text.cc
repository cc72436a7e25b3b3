// Sections of tokenizer.json that prepare a text: normalizer, pre_tokenizer, post_processor.
#include "data/json_fields.h"
#include "data/tokenizer_json_parts.h"

namespace longspan {
namespace {

using nlohmann::json;

// GPT-2's, which ByteLevel applies unless another Split came before.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Regex MakeRegex(std::string_view pattern, const std::string& where) {
  return Regex(pattern, RegexDialect::kOniguruma, where);
}

// {"String": …} or {"Regex": …}.
std::variant<std::string, Regex> ReadPattern(const json& value, const std::string& where) {
  JsonFields fields(value, where);
  const bool is_string = fields.Find("String") != nullptr;
  const std::string text = fields.String(is_string ? "String" : "Regex");
  fields.Finish();
  Require(!text.empty(), "{} is empty, which is not implemented", where);
  if (is_string) return text;
  return MakeRegex(text, where);
}

Pretokenizer::Split::Behavior ReadBehavior(JsonFields& fields, const char* missing) {
  using Behavior = Pretokenizer::Split::Behavior;
  const std::string name = fields.String("behavior", missing);
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Contiguous") return Behavior::kContiguous;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  throw Error(fmt::format("{} is '{}', which is not implemented", fields.Path("behavior"), name));
}

Pretokenizer::Metaspace ReadMetaspace(JsonFields& fields) {
  using Prepend = Pretokenizer::Metaspace::Prepend;
  Pretokenizer::Metaspace metaspace;
  metaspace.replacement = fields.String("replacement");
  Require(!metaspace.replacement.empty(), "{} is empty", fields.Path("replacement"));
  const bool prefix = fields.Bool("add_prefix_space", true);  // older files
  const std::string scheme = fields.String("prepend_scheme", prefix ? "always" : "never");
  Require(prefix || scheme == "never", "{} is false, but prepend_scheme is '{}'",
          fields.Path("add_prefix_space"), scheme);
  Require(scheme == "always" || scheme == "first" || scheme == "never",
          "{} is '{}', which is not implemented", fields.Path("prepend_scheme"), scheme);
  metaspace.prepend = scheme == "always"  ? Prepend::kAlways
                      : scheme == "first" ? Prepend::kFirst
                                          : Prepend::kNever;
  metaspace.split = fields.Bool("split", true);
  fields.Skip("str_rep");  // the replacement again
  return metaspace;
}

struct SpecialIds {
  std::vector<int32_t> prefix, suffix;
};

// One id of "cls" or "sep": [token, id].
int32_t ReadTokenAndId(JsonFields& fields, const char* key) {
  const json& pair = fields.List(key);
  Require(pair.size() == 2, "{} is {}; [token, id] is wanted", fields.Path(key), Quoted(pair));
  return static_cast<int32_t>(JsonFields::CheckedInteger(pair[1], kMaxVocabSize, fields.Path(key)));
}

// TemplateProcessing's "single": what is before and behind the one sequence. (Pairs of texts are no
// documents.)
SpecialIds ReadTemplate(JsonFields& fields) {
  fields.Skip("pair");
  const json& special_tokens = fields.Get("special_tokens");
  SpecialIds ids;
  int num_sequences = 0;
  for (const json& piece : fields.List("single")) {
    JsonFields item(piece, fields.Path("single"));
    if (item.Find("Sequence") != nullptr) {
      ++num_sequences;
    } else {
      JsonFields special(item.Get("SpecialToken"), item.Path("SpecialToken"));
      JsonFields known(special_tokens, fields.Path("special_tokens"));
      JsonFields token(known.Get(special.String("id")), fields.Path("special_tokens"));
      for (const json& id : token.List("ids"))
        (num_sequences == 0 ? ids.prefix : ids.suffix)
            .push_back(
                static_cast<int32_t>(JsonFields::CheckedInteger(id, kMaxVocabSize, token.Path("ids"))));
    }
    item.Finish();
  }
  Require(num_sequences == 1, "{} has the text {} times; once is wanted", fields.Path("single"),
          num_sequences);
  return ids;
}

}  // namespace

void ReadNormalizer(const json& section, const std::string& where, Normalizer* normalizer) {
  if (section.is_null()) return;
  JsonFields fields(section, where);
  const std::string type = fields.String("type");
  if (type == "Sequence") {
    for (const json& inner : fields.List("normalizers")) ReadNormalizer(inner, where, normalizer);
  } else if (type == "NFC") {
    normalizer->Add(NormalForm::kNfc);
  } else if (type == "NFD") {
    normalizer->Add(NormalForm::kNfd);
  } else if (type == "NFKC") {
    normalizer->Add(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    normalizer->Add(NormalForm::kNfkd);
  } else if (type == "Lowercase") {
    normalizer->Add(Normalizer::Lowercase{});
  } else if (type == "Prepend") {
    normalizer->Add(Normalizer::Prepend{fields.String("prepend")});
  } else if (type == "Replace") {
    auto pattern = ReadPattern(fields.Get("pattern"), fields.Path("pattern"));
    normalizer->Add(Normalizer::Replace{std::move(pattern), fields.String("content")});
  } else if (type == "Strip") {
    normalizer->Add(Normalizer::Strip{fields.Bool("strip_left"), fields.Bool("strip_right")});
  } else {
    throw Error(fmt::format("{}: the normalizer '{}' is not implemented", where, type));
  }
  fields.Finish();
}

bool ReadPretokenizer(const json& section, const std::string& where, Pretokenizer* pretokenizer) {
  using Split = Pretokenizer::Split;
  if (section.is_null()) return false;
  JsonFields fields(section, where);
  const std::string type = fields.String("type");
  bool byte_level = false;
  if (type == "Sequence") {
    for (const json& inner : fields.List("pretokenizers")) {
      Require(!byte_level, "{}: ByteLevel before another pre-tokenizer is not implemented", where);
      byte_level = ReadPretokenizer(inner, where, pretokenizer);
    }
  } else if (type == "ByteLevel") {
    byte_level = true;
    if (fields.Bool("add_prefix_space")) pretokenizer->Add(Pretokenizer::PrefixSpace{});
    if (fields.Bool("use_regex", true))
      pretokenizer->Add(Split{MakeRegex(kByteLevelPattern, where), Split::Behavior::kIsolated, false});
    fields.Skip("trim_offsets");
  } else if (type == "Split") {
    auto pattern = ReadPattern(fields.Get("pattern"), fields.Path("pattern"));
    const Split::Behavior behavior = ReadBehavior(fields, "");
    pretokenizer->Add(Split{std::move(pattern), behavior, fields.Bool("invert")});
  } else if (type == "Digits") {
    const bool individual = fields.Bool("individual_digits");
    pretokenizer->Add(Split{MakeRegex(R"([\p{Nd}\p{Nl}\p{No}])", where),
                            individual ? Split::Behavior::kIsolated : Split::Behavior::kContiguous, false});
  } else if (type == "Punctuation") {
    pretokenizer->Add(
        Split{MakeRegex(R"([\p{P}$+<=>\^`|~])", where), ReadBehavior(fields, "Isolated"), false});
  } else if (type == "Whitespace") {
    // Hugging Face's library has this one pattern in Rust's dialect.
    pretokenizer->Add(
        Split{Regex(R"(\w+|[^\w\s]+)", RegexDialect::kRust, where), Split::Behavior::kRemoved, true});
  } else if (type == "WhitespaceSplit") {
    pretokenizer->Add(Split{MakeRegex(R"(\s)", where), Split::Behavior::kRemoved, false});
  } else if (type == "CharDelimiterSplit") {
    const std::string delimiter = fields.String("delimiter");
    Require(!delimiter.empty(), "{} is empty", fields.Path("delimiter"));
    pretokenizer->Add(Split{delimiter, Split::Behavior::kRemoved, false});
  } else if (type == "Metaspace") {
    pretokenizer->Add(ReadMetaspace(fields));
  } else {
    throw Error(fmt::format("{}: the pre-tokenizer '{}' is not implemented", where, type));
  }
  fields.Finish();
  return byte_level;
}

void ReadPostprocessor(const json& section, const std::string& where, BpeTokenizerParts* parts) {
  if (section.is_null()) return;
  JsonFields fields(section, where);
  const std::string type = fields.String("type");
  SpecialIds ids;
  if (type == "Sequence") {
    for (const json& inner : fields.List("processors")) ReadPostprocessor(inner, where, parts);
  } else if (type == "TemplateProcessing") {
    ids = ReadTemplate(fields);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    ids = {{ReadTokenAndId(fields, "cls")}, {ReadTokenAndId(fields, "sep")}};
    fields.Skip("trim_offsets");
    fields.Skip("add_prefix_space");
  } else if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.Skip(key);
  } else {
    throw Error(fmt::format("{}: the post-processor '{}' is not implemented", where, type));
  }
  fields.Finish();
  if (ids.prefix.empty() && ids.suffix.empty()) return;
  Require(parts->document_prefix.empty() && parts->document_suffix.empty(),
          "{}: several post-processors that add tokens are not implemented", where);
  parts->document_prefix = std::move(ids.prefix);
  parts->document_suffix = std::move(ids.suffix);
}

}  // namespace longspan
