// What each fuzz target reads. All throw an Error for an input that is refused, and check what they promise
// of one that is not.
#pragma once

#include <string_view>

namespace longspan::fuzz {

// Of models (read_models.cc).
void ReadSafetensors(std::string_view input);
void ReadSafetensorsIndex(std::string_view input);
void ReadConfig(std::string_view input);            // config.json
void ReadRope(std::string_view input);              // rope_theta and rope_scaling, as a recipe
void ReadGenerationConfig(std::string_view input);  // generation_config.json
void ReadState(std::string_view input);             // state.json, from which a run goes on
void ReadChecksums(std::string_view input);         // checksums.json

// Of tokenizers (read_tokenizers.cc).
void ReadTokenizerJson(std::string_view input);
void ReadTokenizerConfig(std::string_view input);  // tokenizer_config.json, beside a SentencePiece model
void ReadSentencePiece(std::string_view input);
void ReadTiktoken(std::string_view input);

// Of texts (read_texts.cc).
void ReadJsonLine(std::string_view input);
void ReadTokenFile(std::string_view input);
void ReadGzip(std::string_view input);
void ReadZstd(std::string_view input);
void ReadDocuments(std::string_view input);  // a folder's files, and lines of JSONL
void ReadKeyValues(std::string_view input);  // tasks' files
void ReadVerses(std::string_view input);

// Of settings, and of what runs leave (read_settings.cc).
void ReadRecipe(std::string_view input);
void ReadOverrides(std::string_view input);  // arguments of a command line, one a line
void ReadHardware(std::string_view input);
void ReadMetrics(std::string_view input);

}  // namespace longspan::fuzz
