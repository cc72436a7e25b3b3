// `longspan generate`: text that goes on from a prompt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/generate_config.h"

namespace longspan {

// The ids behind which a model's text ends: eos_token_id of generation_config.json, else of config.json, each
// one id or a list; none if neither has it. Throws Error for a value that is no id.
std::vector<int32_t> EosTokens(const std::string& model_directory, int64_t vocab_size);

// Prints the text as its tokens come, to standard output, and what it took to standard error. Throws Error
// (kUsage for a key, kInput for a model or a prompt) before anything is computed.
void Generate(const GenerateConfig& config);

}  // namespace longspan
