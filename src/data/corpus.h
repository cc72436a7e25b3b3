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

  int64_t total_tokens() const;
};

// A text file (one document), a JSONL file (a document a line: `text`, or `input_ids` with an optional `loss_mask` or
// `labels` of the same length), or a folder of such files, searched recursively in order of their paths.
// Throws Error naming file, line, what was got and wanted: no such file, nothing in it, not UTF-8 free JSON, ids
// that are no integers in [0, vocab_size), lengths that differ, …. Empty documents are dropped.
std::unique_ptr<Corpus> OpenCorpus(const std::string& path, const Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace longspan
