// How the files of a folder become documents; each field is a key of that name.
#pragma once

#include <string>

namespace longspan {

struct DataOptions {
  std::string data_document = "file";       // file | repository
  std::string data_path_filter;             // patterns, see PathFilter; empty: all files
  std::string data_file_header;             // see FileHeader; empty: none
  std::string data_invalid_utf8 = "error";  // error | replace | skip
};

}  // namespace longspan
