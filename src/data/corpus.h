// Corpus: documents as token ids. Immutable and shared by all ranks of a process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/target.h"
#include "data/data_options.h"
#include "data/document_source.h"
#include "data/tokenizer.h"

namespace longspan {

class Corpus {
 public:
  virtual ~Corpus() = default;

  virtual int64_t num_documents() const = 0;
  virtual int64_t num_tokens(int64_t document) const = 0;
  // Tokens [begin, begin + out.size()) of a document.
  virtual void ReadTokens(int64_t document, int64_t begin, std::span<int32_t> out) const = 0;
  // What each of these tokens counts as when it is the target of the row before it: its id, another label, or
  // kIgnoreTarget (from `labels` or `loss_mask` of a JSONL line).
  virtual void ReadLabels(int64_t document, int64_t begin, std::span<int32_t> out) const = 0;
  // "FILE" or "FILE:LINE" of a document, for error messages.
  virtual std::string DocumentName(int64_t document) const = 0;
  // What became of the files that it was made from.
  virtual FileCounts file_counts() const { return {}; }

  int64_t total_tokens() const;
};

// Opens
// - a text file: one document;
// - a JSONL file (*.jsonl): a document a line, as data/jsonl.h says; lines of white space are skipped;
// - either compressed (*.gz, *.zst);
// - a token file (*.tokens, data/token_file.h);
// - a folder: the files below it that data/files.h lists, each as above, but binary ones (a NUL byte in the
// first 8
//   KiB of the text) are left out. With data_document=repository the files of each folder in it, however they
//   are called, are one document: their texts in order, each on a new line.
// Empty documents are dropped. Each text gets the tokenizer's document_prefix and document_suffix; ids stay
// as they are. Text is encoded on all cores and held as ids, but for bytes, which stay where
// they are; token files stay mapped. Throws Error naming file and line, what was got and wanted: no such
// file, nothing in it, a bad line, text whose ids the model doesn't have (tokenizer.vocab_size() >
// vocab_size), ids that don't fit into memory.
std::unique_ptr<Corpus> OpenCorpus(const std::string& path, const Tokenizer& tokenizer, int64_t vocab_size,
                                   const DataOptions& options = {});

}  // namespace longspan
