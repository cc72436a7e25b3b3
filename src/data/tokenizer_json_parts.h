// Parts of tokenizer.json: what each section of the file becomes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/bpe_tokenizer.h"
#include "data/json.h"

namespace longspan {

// The character that stands for a byte in a byte-level vocabulary, as GPT-2 has it: printable Latin-1
// characters themselves, the others in order from U+0100.
std::string ByteLevelSpelling(unsigned char byte);
// The bytes that a token of such a vocabulary spells; none if it has another character.
std::optional<std::string> ByteLevelBytes(std::string_view token);
// The byte of "<0x41>"; none for any other token.
std::optional<unsigned char> FallbackByte(std::string_view token);

// Each throws Error, beginning with `where`, for what is not implemented. A null section is empty.
void ReadNormalizer(const nlohmann::json& section, const std::string& where, Normalizer* normalizer);
// Returns whether it ends in ByteLevel, so that the model's alphabet is bytes.
bool ReadPretokenizer(const nlohmann::json& section, const std::string& where, Pretokenizer* pretokenizer);
void ReadPostprocessor(const nlohmann::json& section, const std::string& where, BpeTokenizerParts* parts);

struct JsonVocabulary {
  std::vector<std::optional<std::string>> tokens;  // by id, as the file spells them
};
// The model: vocabulary and merges.
void ReadBpeModel(const nlohmann::json& section, bool byte_level, const std::string& where, BpeSpec* spec,
                  JsonVocabulary* vocabulary);
// The text of each token.
void ReadDecoder(const nlohmann::json& section, const JsonVocabulary& vocabulary, const std::string& where,
                 TokenTexts* texts);

}  // namespace longspan
