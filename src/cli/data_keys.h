// Keys that commands share which read text.
#pragma once

#include "cli/keys.h"
#include "data/data_options.h"

namespace longspan {

// How the files of a folder become documents.
void AddFolderKeys(KeyList& keys, DataOptions& options);

}  // namespace longspan
