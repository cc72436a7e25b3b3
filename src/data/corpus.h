// Corpus: documents as token ids. Immutable and shared by all ranks of a process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/target.h"
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
  // Files of a folder that were left out because they are binary.
  virtual int64_t num_skipped_files() const { return 0; }

  int64_t total_tokens() const;
};

// Opens
// - a text file: one document, mapped into memory;
// - a JSONL file (*.jsonl): a document a line, as data/jsonl.h says; lines of white space are skipped;
// - a folder: every regular file below it in byte order of its path, *.jsonl as JSONL, all others as text.
// Left out
//   are hidden files and folders (leading dot), links to folders, and binary files (a NUL byte in the first 8
//   KiB).
// Compressed files (*.gz, *.zst) are refused. Empty documents are dropped. Each text gets the tokenizer's
// document_prefix and document_suffix; ids in JSONL stay as they are.
// Throws Error naming file and line, what was got and wanted: no such file, nothing in it, a bad line, text
// whose ids the model doesn't have (tokenizer.vocab_size() > vocab_size), ….
std::unique_ptr<Corpus> OpenCorpus(const std::string& path, const Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace longspan
