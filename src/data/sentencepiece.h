// SentencePiece models (*.model), through the SentencePiece library.
#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace longspan {

// Control symbols in a text are text; the library cannot be asked otherwise. Documents get the model's BOS in
// front if it has one. Throws Error naming the file.
std::unique_ptr<Tokenizer> OpenSentencePiece(const std::string& path);

}  // namespace longspan
