#include "data/tiktoken.h"

#include <array>
#include <charconv>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "core/names.h"
#include "data/bpe_tokenizer.h"

namespace longspan {
namespace {

constexpr size_t kMaxTokenBytes = 4096;  // each is tried at all its cuts; the longest in use have some 200

constexpr std::string_view kR50k =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr std::string_view kCl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Encoding {
  std::string_view name, pattern;
  std::vector<std::pair<std::string, int32_t>> special;
};

std::vector<Encoding> Encodings() {
  std::vector<Encoding> encodings = {
      {"gpt2", kR50k, {{"<|endoftext|>", 50256}}},
      {"r50k_base", kR50k, {{"<|endoftext|>", 50256}}},
      {"p50k_base", kR50k, {{"<|endoftext|>", 50256}}},
      {"p50k_edit",
       kR50k,
       {{"<|endoftext|>", 50256},
        {"<|fim_prefix|>", 50281},
        {"<|fim_middle|>", 50282},
        {"<|fim_suffix|>", 50283}}},
      {"cl100k_base",
       kCl100k,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base", kO200k, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {"o200k_harmony",
       kO200k,
       {{"<|startoftext|>", 199998},
        {"<|endoftext|>", 199999},
        {"<|return|>", 200002},
        {"<|constrain|>", 200003},
        {"<|channel|>", 200005},
        {"<|start|>", 200006},
        {"<|end|>", 200007},
        {"<|message|>", 200008},
        {"<|call|>", 200012}}},
  };
  auto& harmony = encodings.back().special;
  for (const int32_t id : {200000, 200001, 200004, 200009, 200010, 200011})
    harmony.emplace_back(fmt::format("<|reserved_{}|>", id), id);
  for (int32_t id = 200013; id < 201088; ++id) harmony.emplace_back(fmt::format("<|reserved_{}|>", id), id);
  // It has o200k_base's, one of which shares an id with a reserved one.
  harmony.emplace_back("<|endofprompt|>", 200018);
  return encodings;
}

std::string DecodeBase64(std::string_view text, const std::string& where) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  Require(!text.empty() && text.size() % 4 == 0, "{}: '{}' is not base64", where, Shortened(text, 60));
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = i < text.size() - padding ? kDigits.find(text[i]) : 0;
    Require(digit != kDigits.npos, "{}: '{}' is not base64", where, Shortened(text, 60));
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<char>(bits >> shift & 0xFFu));
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

// Fills `ids` and `texts` from the lines of a file.
void ReadRanks(std::string_view text, const std::string& path, BpeTokenizerParts* parts) {
  int64_t line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", path, line_number);
    const size_t space = line.find(' ');
    Require(space != line.npos, "{}: '{}'; a token in base64 and its rank are wanted", where,
            Shortened(line, 60));
    std::string token = DecodeBase64(line.substr(0, space), where);
    Require(token.size() <= kMaxTokenBytes, "{}: the token has {} bytes; at most {} are read", where,
            token.size(), kMaxTokenBytes);
    const std::string_view number = line.substr(space + 1);
    int64_t rank = -1;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
    Require(
        error == std::errc() && stop == number.data() + number.size() && rank >= 0 && rank < kMaxVocabSize,
        "{}: the rank is '{}'; an integer from 0 to {} is wanted", where, Shortened(number, 60),
        kMaxVocabSize - 1);
    auto& texts = parts->texts.bytes;
    if (static_cast<size_t>(rank) >= texts.size()) texts.resize(static_cast<size_t>(rank) + 1);
    Require(!texts[static_cast<size_t>(rank)], "{}: the rank {} is given twice", where, rank);
    texts[static_cast<size_t>(rank)] = token;
    Require(parts->bpe.ids.emplace(std::move(token), static_cast<int32_t>(rank)).second,
            "{}: the token is given twice", where);
  }
  for (int byte = 0; byte < 256; ++byte)
    Require(parts->bpe.ids.contains(std::string(1, static_cast<char>(byte))),
            "{} has no token for the byte 0x{:02X}, so not every text can be encoded", path, byte);
}

// tiktoken merges the neighbours that together have the lowest rank: every cut of a token into two others is
// a merge of that rank.
void AddMerges(BpeSpec* bpe) {
  for (const auto& [token, id] : bpe->ids) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = bpe->ids.find(token.substr(0, cut));
      if (left == bpe->ids.end()) continue;
      const auto right = bpe->ids.find(token.substr(cut));
      if (right != bpe->ids.end())
        bpe->merges.push_back({left->second, right->second, id, static_cast<uint32_t>(id)});
    }
  }
}

}  // namespace

std::vector<std::string_view> TiktokenEncodingNames() {
  std::vector<std::string_view> names;
  for (const Encoding& encoding : Encodings()) names.push_back(encoding.name);
  return names;
}

std::unique_ptr<Tokenizer> OpenTiktoken(const std::string& path, const std::string& pattern) {
  const std::string name = pattern.empty() ? std::filesystem::path(path).stem().string() : pattern;
  Encoding encoding = {"", pattern, {}};
  for (const Encoding& known : Encodings())
    if (known.name == name) encoding = known;
  Require(ExitCode::kUsage, !encoding.pattern.empty(),
          "{}: how a text is cut is not in the file, and its name is no encoding that is known; set "
          "tokenizer_pattern to one of {}, or to a regular expression",
          path, fmt::join(TiktokenEncodingNames(), ", "));

  BpeTokenizerParts parts;
  ReadRanks(MappedFile(path).text(), path, &parts);
  AddMerges(&parts.bpe);
  parts.bpe.whole_pieces = true;
  using Split = Pretokenizer::Split;
  parts.pretokenizer.Add(
      Split{Regex(encoding.pattern, RegexDialect::kRust, path), Split::Behavior::kRemoved, true});
  auto& texts = parts.texts.bytes;
  for (const auto& [content, id] : encoding.special) {
    if (static_cast<size_t>(id) >= texts.size()) texts.resize(static_cast<size_t>(id) + 1);
    Require(!parts.bpe.ids.contains(texts[static_cast<size_t>(id)].value_or("")),
            "{}: the rank {} belongs to {}'s special token {}; give another tokenizer_pattern", path, id,
            name, content);
    texts[static_cast<size_t>(id)] = content;
    AddedToken token;
    token.id = id;
    token.content = content;
    token.special = true;
    parts.added_tokens.push_back(std::move(token));
  }
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace longspan
