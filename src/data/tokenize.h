// Text to a file of token ids.
#pragma once

#include <cstdint>
#include <string>

#include "data/data_options.h"
#include "data/document_source.h"

namespace longspan {

// What `longspan tokenize` does; each field is a key of that name.
struct TokenizeConfig {
  std::string data_path;
  std::string tokenizer_path, tokenizer_pattern;
  std::string output;
  std::string format = "longspan";  // a token file; u32: little-endian ids and nothing else
  int64_t threads = 0;              // that encode; 0: one a core
  DataOptions data_options;
};

struct TokenizeReport {
  FileCounts files;
  int64_t documents = 0, tokens = 0;
  int64_t ignored_tokens = 0;  // that the mask leaves out of the loss
  int64_t output_bytes = 0, id_bytes = 0;
  double seconds = 0, core_seconds = 0;  // elapsed, and of all cores together
};

// Reads what data_path names as OpenCorpus does, document by document, and writes `output` beside its place
// until it is whole. Throws Error: as OpenCorpus does, and if `output` is there already, or a document says
// something that the format cannot hold.
TokenizeReport Tokenize(const TokenizeConfig& config);

}  // namespace longspan
