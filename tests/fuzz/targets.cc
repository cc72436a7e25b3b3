#include "fuzz/targets.h"

#include "core/check.h"
#include "fuzz/readers.h"

namespace longspan::fuzz {
namespace {

template <void (*read)(std::string_view)>
bool Accepts(std::string_view input) {
  try {
    read(input);
    return true;
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).size() > 0);
    return false;
  }
}

constexpr Target kTargets[] = {
    {"safetensors", Accepts<ReadSafetensors>},
    {"safetensors_index", Accepts<ReadSafetensorsIndex>},
    {"config", Accepts<ReadConfig>},
    {"rope", Accepts<ReadRope>},
    {"generation_config", Accepts<ReadGenerationConfig>},
    {"state", Accepts<ReadState>},
    {"checksums", Accepts<ReadChecksums>},
    {"tokenizer_json", Accepts<ReadTokenizerJson>},
    {"tokenizer_config", Accepts<ReadTokenizerConfig>},
    {"sentencepiece", Accepts<ReadSentencePiece>},
    {"tiktoken", Accepts<ReadTiktoken>},
    {"jsonl", Accepts<ReadJsonLine>},
    {"token_file", Accepts<ReadTokenFile>},
    {"gzip", Accepts<ReadGzip>},
    {"zstd", Accepts<ReadZstd>},
    {"documents", Accepts<ReadDocuments>},
    {"key_values", Accepts<ReadKeyValues>},
    {"verses", Accepts<ReadVerses>},
    {"recipe", Accepts<ReadRecipe>},
    {"overrides", Accepts<ReadOverrides>},
    {"hardware", Accepts<ReadHardware>},
    {"metrics", Accepts<ReadMetrics>},
};

}  // namespace

std::span<const Target> Targets() { return kTargets; }

}  // namespace longspan::fuzz
