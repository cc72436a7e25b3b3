// `longspan generate`: text that goes on from a prompt.
#pragma once

#include "eval/generate_config.h"

namespace longspan {

// Prints the text as its tokens come, to standard output, and what it took to standard error. Throws Error
// (kUsage for a key, kInput for a model or a prompt) before anything is computed.
void Generate(const GenerateConfig& config);

}  // namespace longspan
