// What longspan makes of texts, for compare_tokenizers.py.
//
//   tokenizer_probe TOKENIZER PATTERN text|special   reads a JSON string a line, writes {"ids", "text"} a
//   line;
//                                                    special: special tokens in the text are themselves
//   tokenizer_probe TOKENIZER PATTERN FILE           writes the ids of a whole file, a line each, and its
//   speed
//                                                    to standard error
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/check.h"
#include "core/file.h"
#include "data/tokenizer.h"

int main(int argc, char** argv) try {
  using namespace longspan;
  Require(argc == 4, "usage: tokenizer_probe TOKENIZER PATTERN text|special|FILE");
  const auto tokenizer = OpenTokenizer(argv[1], argv[2]);
  const std::string mode = argv[3];
  if (mode != "text" && mode != "special") {
    const std::string text = ReadTextFile(mode);
    const std::clock_t begin = std::clock();
    const std::vector<int32_t> ids = tokenizer->Encode(text);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    for (const int32_t id : ids) std::cout << id << '\n';
    fmt::print(stderr, "{} bytes, {} tokens, {:.3f} s, {:.1f} MB/s; decoded {}\n", text.size(), ids.size(),
               seconds, static_cast<double>(text.size()) / seconds / 1e6,
               tokenizer->Decode(ids) == text ? "to the same" : "to another text");
    return 0;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = nlohmann::json::parse(line).get<std::string>();
    const std::vector<int32_t> ids =
        mode == "text" ? tokenizer->Encode(text) : tokenizer->EncodeWithSpecialTokens(text);
    TokenStream stream(*tokenizer);
    std::string decoded;
    for (const int32_t id : ids) decoded += stream.Next(id);
    decoded += stream.Finish();
    std::cout << nlohmann::json{{"ids", ids}, {"text", decoded}} << '\n';
  }
  return 0;
} catch (const std::exception& e) {
  std::cerr << "tokenizer_probe: " << e.what() << '\n';
  return 1;
}
