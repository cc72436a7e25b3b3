// Token files (*.tokens): documents as ids, mapped into memory. `longspan tokenize` writes them.
//
// All numbers are little-endian. A file is
//
//   start     "longspan tokens\n", version (u32), 0 (u32), 0 (u64)
//   ids       of all documents one behind the other, u16 or u32; zeros up to a multiple of 8 bytes
//   mask      if there is one: a bit a token, the lowest first, 1: the token counts as a target; zeros
//   likewise checks    CRC-32 (u32) of each 64 KiB of ids and mask (of what is left, the last); zeros
//   likewise ends      of each document (u64), in tokens from the first document's first places    of each
//   document: its file (u32) and line there (u32; 0: the file is the document) names     of the files: ends
//   (u64), then their bytes; zeros likewise footer    numbers of tokens, documents and files, bytes of names,
//   vocab_size, tokenizer's fingerprint (u64
//             each); bytes of an id, 1 if there is a mask, CRC-32 of checks to names, CRC-32 of the footer
//             before this number (u32 each)
//
// so a writer never goes back, and a reader finds everything from the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "data/corpus.h"

namespace longspan {

// Known by its name, *.tokens; outside of folders also by how it begins, whatever it is called.
bool IsTokenFile(const std::string& path, bool in_folder);
int64_t TokenFileIdBytes(int64_t vocab_size);  // 2 where they suffice, else 4

// Opens one. Start, footer and all from checks to names are verified at once; ids and mask when a block of
// them is first read, so that opening takes no time that grows with the tokens. `tokenizer` is the model's: a
// file that was made with another one is refused, if both can say (TokenizerFingerprint; bytes stand for
// none), and so is a vocabulary of more than `vocab_size` ids. Throws Error naming the file. A file that is
// cut short while it is mapped ends the process (SIGBUS).
std::unique_ptr<Corpus> OpenTokenFile(const std::string& path, const Tokenizer& tokenizer,
                                      int64_t vocab_size);

// Writes one; the file is there only after Finish. Memory: 16 bytes a document, and a bit a token from the
// first mask on. Throws Error(kResource) naming the file.
class TokenFileWriter {
 public:
  // `path` is written as it is given; whoever calls puts the file in its place. Ids are below `vocab_size`.
  TokenFileWriter(const std::string& path, int64_t vocab_size, uint64_t tokenizer_fingerprint);

  // `file`: an index of the names that Finish gets; `mask`: empty, or whether each id counts as a target.
  void Add(std::span<const int32_t> ids, const std::vector<bool>& mask, int64_t file, int64_t line);
  void Finish(std::span<const std::string> names);

  int64_t size() const { return writer_.size(); }

 private:
  void WriteData(const void* data, size_t size);  // of what the checks are of
  void WritePadding();
  template <class T>
  void WriteIndex(std::span<const T> values);
  void AddMask(const std::vector<bool>& mask, size_t num_ids);

  FileWriter writer_;
  const int64_t vocab_size_;
  const uint64_t fingerprint_;
  const size_t id_bytes_;
  std::vector<uint16_t> narrow_;
  std::vector<char> buffer_;      // of the block that is being filled
  std::vector<uint32_t> checks_;  // of whole blocks
  std::vector<uint64_t> ends_;
  std::vector<uint32_t> places_;
  std::vector<uint8_t> mask_;  // empty until there is a token that doesn't count
  uint64_t num_tokens_ = 0;
  uint32_t index_check_ = 0;
};

}  // namespace longspan
