// `longspan eval`: how well a model predicts a text, or finds what is in one.
#pragma once

#include "eval/eval_config.h"

namespace longspan {

// Measures what `config` says and prints it; also writes the page, if one is wanted. Throws Error (kUsage for
// a key, kInput for a model, a text or a task's file) before anything is computed.
void Evaluate(const EvalConfig& config);

}  // namespace longspan
