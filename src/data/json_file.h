// Files of JSON: settings and indices, not data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace longspan {

// As ParseJson. Throws Error as MappedFile does, and for a file of more than 100 MB: no model's or
// tokenizer's is as long, and in memory it takes some 25 times as much.
nlohmann::json ReadJsonFile(const std::string& path);

}  // namespace longspan
