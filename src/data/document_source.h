// What a data set's files hold, piece by piece, before it is encoded: each piece is a document's text or some
// lines of JSONL.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_options.h"
#include "data/decompress.h"
#include "data/files.h"

namespace longspan {

// What became of the files.
struct FileCounts {
  int64_t files = 0;       // that were read
  int64_t binary = 0;      // left out
  int64_t left_out = 0;    // by data_path_filter
  int64_t not_utf8 = 0;    // left out (data_invalid_utf8=skip)
  int64_t mended = 0;      // read with U+FFFD for what is not UTF-8 (data_invalid_utf8=replace)
  int64_t text_bytes = 0;  // decompressed, headers not counted

  FileCounts& operator+=(const FileCounts& other);
};

struct SourcePiece {
  int64_t name = 0;        // in DocumentSource::names()
  std::string shown_name;  // that name, for messages
  int64_t first_line = 0;  // of JSONL, whole lines; 0: the text is a document
  std::string_view text;
  std::shared_ptr<const void> owner;  // of what `text` points to
  bool is_mapped = false;             // that is a file
};

class DocumentSource {
 public:
  // `files` of `list`, which outlives this; `takes_any_bytes`: what reads the text needs no UTF-8.
  DocumentSource(const DataFiles& list, std::span<const DataFile> files, const DataOptions& options,
                 bool takes_any_bytes);
  ~DocumentSource();

  // The next piece, in order; false at the end. Throws Error naming the file.
  bool Next(SourcePiece* piece);

  const std::vector<std::string>& names() const { return names_; }  // files, or repositories
  const FileCounts& counts() const { return counts_; }
  int64_t bytes_read() const;  // of the files as they lie on disk

 private:
  struct Text {  // of one file
    std::string_view text;
    std::shared_ptr<const void> owner;
    bool is_mapped = false;
  };
  class Lines;

  bool ReadText(const DataFile& file, Text* text);
  bool MakeUtf8(const DataFile& file, Text* text);
  bool NextRepository(SourcePiece* piece);
  void Name(std::string name, SourcePiece* piece);

  const bool is_folder_, repositories_;
  const std::string root_;
  const FileHeader header_;
  const std::string invalid_utf8_;
  const bool takes_any_bytes_;
  const int64_t max_text_bytes_;
  std::span<const DataFile> rest_;
  std::unique_ptr<Lines> lines_;  // of the JSONL file that is being read
  std::vector<std::string> names_;
  FileCounts counts_;
  int64_t bytes_done_ = 0;
};

}  // namespace longspan
