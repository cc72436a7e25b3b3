#include "data/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "data/json.h"
#include "data/json_file.h"
#include "data/sentencepiece.h"
#include "data/tiktoken.h"
#include "data/tokenizer_json.h"
#include "data/utf8.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNumBytes = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return kNumBytes; }

  void AppendToken(int32_t id, bool, std::string* bytes) const override {
    Require(id >= 0 && id < kNumBytes, "id {} is no byte; the byte tokenizer has ids from 0 to {}", id,
            kNumBytes - 1);
    bytes->push_back(static_cast<char>(id));
  }

  bool IsBytes() const override { return true; }

 private:
  std::vector<int32_t> DoEncode(std::string_view text, bool special_is_text) const override {
    Require(special_is_text, "the byte tokenizer has no special tokens");
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
};

// The tokenizer's file in a directory.
std::string FileIn(const std::string& directory) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (Exists(directory + "/" + name)) return directory + "/" + name;
  }
  std::vector<std::string> others;
  std::error_code error;  // a directory that cannot be listed has none
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error))
    if (entry.path().extension() == ".tiktoken") others.push_back(entry.path());
  std::sort(others.begin(), others.end());
  Require(!others.empty(), "{} has no tokenizer.json, tokenizer.model or *.tiktoken", directory);
  Require(others.size() == 1, "{} has several tokenizers; give the path of one: {}", directory,
          fmt::join(others, ", "));
  return others[0];
}

// A SentencePiece model in a directory, whose tokenizer_config.json may say what is put around a text; a
// tokenizer.json says so itself, and Hugging Face's libraries then don't look at the other.
std::unique_ptr<Tokenizer> OpenSentencePieceIn(const std::string& directory, const std::string& file) {
  const std::string config = directory + "/tokenizer_config.json";
  if (!Exists(config)) return OpenSentencePiece(file);
  const auto json = ReadJsonFile(config);
  Require(json.is_object(), "{} is {}; an object is wanted", config, Quoted(json));
  const auto flag = [&](const char* key) -> std::optional<bool> {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) return std::nullopt;
    Require(found->is_boolean(), "{}.{} is {}; true or false is wanted", config, key, Quoted(*found));
    return found->get<bool>();
  };
  return OpenSentencePiece(file, flag("add_bos_token"), flag("add_eos_token"));
}

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> OpenTokenizer(const std::string& path, const std::string& pattern) {
  const std::string file = IsDirectory(path) ? FileIn(path) : path;
  const std::string extension = fs::path(file).extension();
  if (extension == ".tiktoken") return OpenTiktoken(file, pattern);
  Require(ExitCode::kUsage, pattern.empty(),
          "{} says itself how a text is cut; tokenizer_pattern is for tiktoken files", file);
  if (extension == ".json") return OpenTokenizerJson(file);
  if (extension == ".model") return file == path ? OpenSentencePiece(file) : OpenSentencePieceIn(path, file);
  throw Error(
      fmt::format("{} is no tokenizer; give a directory that has one, or a file *.json, *.tiktoken or "
                  "*.model",
                  file));
}

std::string Tokenizer::Decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (size_t i = 0; i < ids.size(); ++i) AppendToken(ids[i], i == 0, &bytes);
  return bytes;
}

uint64_t TokenizerFingerprint(const Tokenizer& tokenizer) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  const auto add = [&](std::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  };
  bool is_any = false;
  std::string token;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    token.clear();
    try {
      tokenizer.AppendToken(static_cast<int32_t>(id), false, &token);
      is_any = true;
      add(fmt::format("{}:", token.size()));
      add(token);
    } catch (const Error&) {  // an id without a token
      add("-");
    }
  }
  return is_any ? hash : 0;
}

std::string TokenStream::Next(int32_t id) {
  tokenizer_.AppendToken(id, std::exchange(is_first_, false), &held_);
  std::string text;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Prefix prefix = ReadUtf8Prefix(rest);
    if (prefix.kind == Utf8Kind::kIncomplete) break;
    text += prefix.kind == Utf8Kind::kCharacter ? rest.substr(0, prefix.size) : kReplacementCharacter;
    rest.remove_prefix(prefix.size);
  }
  held_ = std::string(rest);
  return text;
}

std::string TokenStream::Finish() {
  is_first_ = true;
  return std::exchange(held_, {}).empty() ? std::string() : std::string(kReplacementCharacter);
}

}  // namespace longspan
