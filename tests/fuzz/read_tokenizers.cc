#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "data/sentencepiece.h"
#include "data/tiktoken.h"
#include "data/tokenizer.h"
#include "data/tokenizer_json.h"
#include "fuzz/memory_file.h"
#include "fuzz/readers.h"

namespace longspan::fuzz {
namespace {

// Hard texts become ids and text again, or are refused.
void TryTexts(const Tokenizer& tokenizer) {
  std::string every_byte;
  for (int i = 1; i < 128; ++i) every_byte += static_cast<char>(i);
  for (const std::string& text :
       {std::string(), std::string("Hello, world! It's 1234 o'clock.\n\n  x"),
        std::string("<s>a\u00e9\u0301\u4e2d\U0001f600\u200d"), every_byte, std::string(300, 'a')}) {
    try {
      const std::vector<int32_t> ids = tokenizer.Encode(text);
      for (const int32_t id : ids) CHECK(id >= 0 && id < tokenizer.vocab_size());
      tokenizer.Decode(ids);
    } catch (const Error&) {  // of this text
    }
  }
}

// A folder with a SentencePiece model of three pieces and the unknown one, beside which the input lies.
class ModelFolder {
 public:
  ModelFolder() : files_({"tokenizer_config.json"}) {
    const auto field = [](int number, const std::string& bytes) {
      return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
    };
    const auto piece = [&](const std::string& text, char type) {
      return field(1, field(1, text) + std::string("\x15\0\0\0\0\x18", 6) + type);  // score 0, type
    };
    WriteNewFile(files_.path() + "/tokenizer.model",
                 piece("<unk>", 2) + piece("<s>", 3) + piece("\xE2\x96\x81", 1) + piece("a", 1));
  }
  std::string With(std::string_view input) const { return files_.With(input); }

 private:
  const MemoryFolder files_;
};

}  // namespace

void ReadTokenizerJson(std::string_view input) { TryTexts(*ParseTokenizerJson(input, "tokenizer.json")); }

void ReadSentencePiece(std::string_view input) { TryTexts(*OpenSentencePiece(FileOf(input))); }

void ReadTokenizerConfig(std::string_view input) {
  static const ModelFolder folder;
  TryTexts(*OpenTokenizer(folder.With(input)));
}

void ReadTiktoken(std::string_view input) { TryTexts(*OpenTiktoken(FileOf(input), "r50k_base")); }

}  // namespace longspan::fuzz
