#include "cli/data_keys.h"

namespace longspan {

void AddFolderKeys(KeyList& keys, DataOptions& options) {
  keys.Add("data_document", &options.data_document,
           "What of a folder is a document: a file, or a repository, all files of a folder in it.", {},
           {"file", "repository"});
  keys.Add(
      "data_path_filter", &options.data_path_filter,
      "Files of a folder that are taken, as patterns of their names or, with a slash, of their paths in it: "
      "`*.c,*.h,!*test*` takes the first two and leaves out the last; empty: all.");
  keys.Add("data_file_header", &options.data_file_header,
           "Line before each text file of a folder, as `// FILE: {path}`; empty: none.");
  keys.Add(
      "data_invalid_utf8", &options.data_invalid_utf8,
      "What becomes of a text that is not UTF-8: an error, its invalid bytes replaced by U+FFFD, or the file "
      "skipped. Without a tokenizer error takes bytes as they are.",
      {}, {"error", "replace", "skip"});
}

}  // namespace longspan
