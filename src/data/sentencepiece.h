// SentencePiece models (*.model), through the SentencePiece library.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/tokenizer.h"

namespace longspan {

// Control symbols in a text are text; the library cannot be asked otherwise. Documents get the model's BOS in
// front if it has one, and no EOS, unless `add_bos` or `add_eos` says otherwise (add_bos_token and
// add_eos_token of a tokenizer_config.json). The library's byte pair encoding is slow on long texts; where
// nothing can reach over a space it gets them word by word, with the same ids. Throws Error naming the file.
std::unique_ptr<Tokenizer> OpenSentencePiece(const std::string& path, std::optional<bool> add_bos = {},
                                             std::optional<bool> add_eos = {});

}  // namespace longspan
