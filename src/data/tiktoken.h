// tiktoken files: a line a token, its bytes in base64 and its rank.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace longspan {

// Encodings known by name: pattern and special tokens, as OpenAI's tiktoken has them.
std::vector<std::string_view> TiktokenEncodingNames();

// `pattern`: one of these names, else a regular expression (in tiktoken's syntax; there are then no special
// tokens, and text that it does not match is left out, as tiktoken does); empty: the name of the file. The
// rank of a token is its id. Documents get no prefix. Throws Error naming file and line.
std::unique_ptr<Tokenizer> OpenTiktoken(const std::string& path, const std::string& pattern);

}  // namespace longspan
