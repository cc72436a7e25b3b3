// What a model's files say of the text that it writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longspan {

// The ids behind which a model's text ends: eos_token_id of generation_config.json, else of config.json, each
// one id or a list; none if neither has it. Throws Error for a value that is no id.
std::vector<int32_t> EosTokens(const std::string& model_directory, int64_t vocab_size);

}  // namespace longspan
