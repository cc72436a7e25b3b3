#include "data/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "core/file.h"
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

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> OpenTokenizer(const std::string& path, const std::string& pattern) {
  const std::string file = IsDirectory(path) ? FileIn(path) : path;
  const std::string extension = fs::path(file).extension();
  if (extension == ".tiktoken") return OpenTiktoken(file, pattern);
  Require(ExitCode::kUsage, pattern.empty(),
          "{} says itself how a text is cut; tokenizer_pattern is for tiktoken files", file);
  if (extension == ".json") return OpenTokenizerJson(file);
  if (extension == ".model") return OpenSentencePiece(file);
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
